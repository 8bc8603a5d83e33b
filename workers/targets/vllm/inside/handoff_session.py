"""Session (one trace) on two engines: a producer prefills prompts, a consumer decodes."""

from collections import Counter
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from scenarios.events import Abort, AnyEvent, Preempt, ResetPrefixCache, Submit
from scenarios.spec import PRODUCER, Handoff
from workers.targets.child.answers import Delivery
from workers.targets.vllm.inside.producer import Producer
from workers.targets.vllm.inside.requests import add_to_engine
from workers.targets.vllm.inside.session import Session, memory_of


class HandoffSession(Session):
    """Session on two engines: each request goes to the producer, then to the consumer.

    A request is in one of the two engines at a time; events on it are applied there.
    """

    def __init__(
        self, engine: Any, *given: Any, handoff: Handoff, produce: Callable[[Any, Counter[str]], Producer]
    ) -> None:
        super().__init__(engine, *given)
        self._handoff, self._producer = handoff, produce(engine, self.probes)
        self._submitted: dict[str, tuple[Submit, int]] = {}

    @property
    def memory(self) -> Mapping[str, object]:
        engine, stream = self._producer.engine, SimpleNamespace(producer=self._producer.flights.stream)
        produced = {f"{PRODUCER}.{name}": holder for name, holder in memory_of(engine).items()}
        # The producer's caches come first, so that loaded tensors are reported under their names.
        return {**produced, **super().memory, "lanes": stream}

    def happen(self, event: AnyEvent) -> None:
        match event:
            case Preempt(request=name) if self._producer.is_prefilling(self._ids.get(name, "")):
                self._producer.preempt(self._ids[name])
                return
            case ResetPrefixCache():
                self._producer.reset_prefix_cache()
        super().happen(event)

    def step(self) -> list[Delivery]:
        turns = self._handoff.turns
        for _ in range(turns[self._tick % len(turns)]):
            for request_id, params in self._producer.step(self._tick).items():
                event, arrival = self._submitted.pop(request_id)
                self.probes["handoff"] += 1
                add_to_engine(self.engine, request_id, event, arrival, transfer=params)
        self._producer.order_later_loads(self.engine)
        return super().step()

    def drained(self) -> bool:
        return super().drained() and self._producer.drained()

    def ended(self) -> None:
        super().ended()
        self._producer.ended()

    def close(self) -> None:
        super().close()
        self._producer.close()

    def _add(self, request_id: str, event: Submit, *, resumable: bool) -> None:
        assert not resumable, "parts of a session cannot be handed off"
        self._submitted[request_id] = event, self._submits.taken
        self._producer.submit(request_id, event, self._submits.taken)

    def _abort(self, event: Abort) -> None:
        request_id = self._ids.get(event.request, "")
        if not self._producer.is_prefilling(request_id):
            super()._abort(event)
            return
        self.probes["abort"] += 1
        self.probes["abort_at_producer"] += 1
        self._alive.discard(request_id)
        del self._submitted[request_id]
        self._producer.abort(request_id, within_step=event.at != "before_schedule")
