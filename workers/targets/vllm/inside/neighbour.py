"""Neighbour: a second engine in this process that repeats one request."""

from collections.abc import Callable, Sequence
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.inside.requests import add_to_engine
from workers.targets.vllm.inside.transfer.engine import using_connector_of

# Prompt longer than a block.
_SUBMIT = Submit(tick=0, request="neighbour", prompt=tuple(number * 7 % 31 for number in range(37)), max_tokens=5)


class RepeatedRequest:
    """Runs one request again and again on an engine, until `close`."""

    def __init__(self, engine: Any, give_back: Callable[[Any], None]) -> None:
        self._engine, self._give_back = engine, give_back
        self._tokens: list[int] = []
        self._count = 0

    def step(self) -> Sequence[tuple[int, ...]]:
        """Run a step; return the output tokens of each repetition that finished in it."""
        if not (self._engine.scheduler.has_requests() or self._engine.batch_queue):
            self._submit()
        return self._step()

    def close(self) -> None:
        """Run until the request finishes, then return the engine to its pool by `give_back`."""
        while self._engine.scheduler.has_requests() or self._engine.batch_queue:
            self._step()
        self._give_back(self._engine)

    def _step(self) -> Sequence[tuple[int, ...]]:
        with using_connector_of(self._engine):
            outputs, executed = self._engine.step_fn()
            self._engine.post_step(executed)
        ended = []
        for output in (output for each in (outputs or {}).values() for output in each.outputs):
            self._tokens += output.new_token_ids
            if output.finish_reason is not None:
                ended.append(tuple(self._tokens))
                self._tokens = []
        return ended

    def _submit(self) -> None:
        self._count += 1
        # Without this the request would hit the prefix cache of the request before.
        self._engine.reset_prefix_cache()
        add_to_engine(self._engine, f"neighbour-{self._count}", _SUBMIT, self._count)
