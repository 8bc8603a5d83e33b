"""Producer: an engine that prefills the prompts of a second engine, the consumer.

A request has the same id in both engines.
"""

from collections.abc import Callable, Mapping
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.inside.plans import PlanRecorder
from workers.targets.vllm.inside.requests import add_to_engine
from workers.targets.vllm.inside.transfer.copies import launched_event
from workers.targets.vllm.inside.transfer.engine import using_connector_of
from workers.targets.vllm.inside.transfer.flights import Flights
from workers.targets.vllm.inside.transfer.handoff import PREFILL_PARAMS, num_prefilled_tokens


class Producer:
    """Engine that prefills prompts in one trace; `close` returns it to its pool if it is idle."""

    def __init__(
        self, engine: Any, flights: Flights, recorder: PlanRecorder | None, give_back: Callable[[Any], None]
    ) -> None:
        self.engine, self.flights = engine, flights
        # Event after all work launched so far, on a device with streams.
        self._written: Any = None
        self._recorder, self._give_back = recorder, give_back
        self._waiting: set[str] = set()
        # Aborts that arrived during the current step.
        self._aborts_in_step: list[str] = []
        scheduler = engine.scheduler
        self._schedule: Callable[..., Any] = scheduler.schedule
        self._preempt: Callable[..., Any] = scheduler._preempt_request
        scheduler.schedule = self._observed_schedule
        scheduler._preempt_request = self._counted_preemption

    def submit(self, request_id: str, event: Submit, arrival: int) -> None:
        """Submit a request for prefill only: the prompt, and one output token that is ignored."""
        wanted = {"num_logprobs": 0, "logprob_tokens": (), "num_prompt_logprobs": 0, "min_tokens": 0}
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        has_states = len(self.engine.scheduler.kv_cache_config.kv_cache_groups) > 1
        asked = event.model_copy(
            update={
                "prompt": event.prompt[: num_prefilled_tokens(len(event.prompt), has_states)],
                "max_tokens": 1,
                "stop": (),
                "params": event.params.model_copy(update=wanted),
            },
        )
        self._waiting.add(request_id)
        add_to_engine(self.engine, request_id, asked, arrival, transfer=PREFILL_PARAMS)

    def is_prefilling(self, request_id: str) -> bool:
        """Return whether a request is still in the producer."""
        return request_id in self._waiting

    def abort(self, request_id: str, *, within_step: bool) -> None:
        """Abort a request, between two steps or while a step's results are processed."""
        self._waiting.discard(request_id)
        if within_step:
            self.engine.aborts_queue.put_nowait([request_id])
            self._aborts_in_step.append(request_id)
        else:
            self.engine.abort_requests([request_id])

    def preempt(self, request_id: str) -> None:
        """Preempt a request if it is running."""
        scheduler = self.engine.scheduler
        request = scheduler.requests.get(request_id)
        if request in scheduler.running:
            scheduler.running.remove(request)
            # The scheduler calls it like this if blocks run out.
            scheduler._preempt_request(request, 0.0, drop_stale_output=scheduler.requires_kv_delivery)

    def reset_prefix_cache(self) -> None:
        """Reset the producer's prefix cache."""
        self.engine.reset_prefix_cache()

    def step(self, tick: int) -> Mapping[str, Mapping[str, Any]]:
        """Run a step; return the `kv_transfer_params` of each prefilled request, by id."""
        self.flights.tick = tick
        with using_connector_of(self.engine):
            outputs, executed = self.engine.step_fn()
            self.engine.post_step(executed)
            self.engine.abort_requests(self._aborts_in_step)
            self._aborts_in_step.clear()
            if self.flights.stream is not None:
                self._written = launched_event()
        if self._recorder is not None:
            self._recorder.stepped()
        delivered = [output for each in (outputs or {}).values() for output in each.outputs]
        ended = [
            output for output in delivered if output.finish_reason is not None and output.request_id in self._waiting
        ]
        self._waiting.difference_update(output.request_id for output in ended)
        return {output.request_id: output.kv_transfer_params for output in ended}

    def order_later_loads(self, consumer: Any) -> None:
        """Make the consumer's later loads wait for all device work launched until now."""
        consumer.scheduler.connector.flights.agent.mover.copies.loads_after = self._written

    def drained(self) -> bool:
        return not (self.engine.scheduler.has_requests() or self.engine.batch_queue)

    def ended(self) -> None:
        """Record leaked blocks and requests, when no request is left."""
        if self._recorder is not None:
            self._recorder.finish()
            if self.drained():
                self._recorder.drained(self.flights.left())

    def close(self) -> None:
        """Restore the engine's methods, and give the engine back if no request is left."""
        if not self.drained():
            return
        scheduler = self.engine.scheduler
        del scheduler.schedule, scheduler._preempt_request
        if self._recorder is not None:
            self._recorder.release()
        self._give_back(self.engine)

    def _observed_schedule(self, *arguments: Any, **options: Any) -> Any:
        plan = self._schedule(*arguments, **options)
        if self._recorder is not None:
            self._recorder.scheduled(plan)
        return plan

    def _counted_preemption(self, request: Any, *arguments: Any, **options: Any) -> None:
        self.flights.probes["producer_preemption"] += 1
        self.flights.probes["producer_preemption_in_flight"] += bool(self.engine.batch_queue)
        self._preempt(request, *arguments, **options)
