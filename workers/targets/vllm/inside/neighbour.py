"""Neighbour: another engine in the process, which answers one request again and again, a step at a time."""

from collections.abc import Callable, Sequence
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.inside.sampling_params import sampling_params
from workers.targets.vllm.inside.transfer.engine import unconnected

# Longer than a block.
_SUBMIT = Submit(tick=0, request="neighbour", prompt=tuple(number * 7 % 31 for number in range(37)), max_tokens=5)


class OneRequest:
    """An engine that has its request again as soon as that has ended; `give_back` takes the engine at the end."""

    def __init__(self, engine: Any, give_back: Callable[[Any], None]) -> None:
        self._engine, self._give_back = engine, give_back
        self._tokens: list[int] = []
        self._count = 0

    def step(self) -> Sequence[tuple[int, ...]]:
        """Do a step; return the outputs that have come to their ends."""
        if not (self._engine.scheduler.has_requests() or self._engine.batch_queue):
            self._submit()
        return self._step()

    def close(self) -> None:
        """Let the request come to its end, and give the engine back."""
        while self._engine.scheduler.has_requests() or self._engine.batch_queue:
            self._step()
        self._give_back(self._engine)

    def _step(self) -> Sequence[tuple[int, ...]]:
        with unconnected():
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
        from vllm.v1.engine import EngineCoreRequest  # noqa: PLC0415  what they replace must be replaced by then

        self._count += 1
        # Its blocks are not those that a request before it has left.
        self._engine.reset_prefix_cache()
        assert isinstance(_SUBMIT.prompt, tuple), "its prompt is explicit"
        request = EngineCoreRequest(
            request_id=f"neighbour-{self._count}",
            prompt_token_ids=list(_SUBMIT.prompt),
            mm_features=None,
            sampling_params=sampling_params(_SUBMIT),
            pooling_params=None,
            arrival_time=float(self._count),
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
        )
        self._engine.add_request(*self._engine.preprocess_add_request(request))
