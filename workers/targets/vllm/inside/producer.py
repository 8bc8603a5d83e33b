"""Producer: an engine that computes the prompts of another one's requests, whose ids they bear in both."""

from collections.abc import Callable, Mapping
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.inside.recorder import StepRecorder
from workers.targets.vllm.inside.requests import hand_in
from workers.targets.vllm.inside.transfer.copies import launched
from workers.targets.vllm.inside.transfer.engine import turn_of
from workers.targets.vllm.inside.transfer.flights import Flights
from workers.targets.vllm.inside.transfer.handoff import ASKED, num_computed_elsewhere


class Producer:
    """A producer for one trace, step by step; `give_back` takes its engine if it has drained."""

    def __init__(
        self, engine: Any, flights: Flights, recorder: StepRecorder | None, give_back: Callable[[Any], None]
    ) -> None:
        self.engine, self.flights = engine, flights
        # An event behind all that it has launched, on a device with streams.
        self._written: Any = None
        self._recorder, self._give_back = recorder, give_back
        self._waiting: set[str] = set()
        # Aborts that came during a step.
        self._aborted: list[str] = []
        scheduler = engine.scheduler
        self._schedule: Callable[..., Any] = scheduler.schedule
        self._preempt: Callable[..., Any] = scheduler._preempt_request
        scheduler.schedule = self._observed_schedule
        scheduler._preempt_request = self._counted_preemption

    def submit(self, request_id: str, event: Submit, arrival: int) -> None:
        """Have a prompt computed; its client wants no more than a token, whatever that is."""
        wanted = {"num_logprobs": 0, "logprob_tokens": (), "num_prompt_logprobs": 0, "min_tokens": 0}
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        has_states = len(self.engine.scheduler.kv_cache_config.kv_cache_groups) > 1
        asked = event.model_copy(
            update={
                "prompt": event.prompt[: num_computed_elsewhere(len(event.prompt), has_states)],
                "max_tokens": 1,
                "stop": (),
                "params": event.params.model_copy(update=wanted),
            },
        )
        self._waiting.add(request_id)
        hand_in(self.engine, request_id, asked, arrival, transfer=ASKED)

    def has(self, request_id: str) -> bool:
        """Tell whether a request's prompt is yet to be computed."""
        return request_id in self._waiting

    def abort(self, request_id: str, *, within_step: bool) -> None:
        """Give up a request, between two steps or where the result of one is processed."""
        self._waiting.discard(request_id)
        if within_step:
            self.engine.aborts_queue.put_nowait([request_id])
            self._aborted.append(request_id)
        else:
            self.engine.abort_requests([request_id])

    def preempt(self, request_id: str) -> None:
        """Take its blocks from a request that runs."""
        scheduler = self.engine.scheduler
        request = scheduler.requests.get(request_id)
        if request in scheduler.running:
            scheduler.running.remove(request)
            # As it does where blocks run out.
            scheduler._preempt_request(request, 0.0, drop_stale_output=scheduler.requires_kv_delivery)

    def reset_prefix_cache(self) -> None:
        """Have it forget what no request of it needs."""
        self.engine.reset_prefix_cache()

    def step(self, tick: int) -> Mapping[str, Mapping[str, Any]]:
        """Do a step; return what is told of each request whose prompt is computed, by id."""
        self.flights.tick = tick
        with turn_of(self.engine):
            outputs, executed = self.engine.step_fn()
            self.engine.post_step(executed)
            self.engine.abort_requests(self._aborted)
            self._aborted.clear()
            if self.flights.stream is not None:
                self._written = launched()
        if self._recorder is not None:
            self._recorder.stepped()
        told = [output for each in (outputs or {}).values() for output in each.outputs]
        ended = [output for output in told if output.finish_reason is not None and output.request_id in self._waiting]
        self._waiting.difference_update(output.request_id for output in ended)
        return {output.request_id: output.kv_transfer_params for output in ended}

    def let_read(self, consumer: Any) -> None:
        """Have what a consumer reads from now on come behind all that was launched."""
        consumer.scheduler.connector.flights.agent.mover.copies.behind = self._written

    def drained(self) -> bool:
        return not (self.engine.scheduler.has_requests() or self.engine.batch_queue)

    def ended(self) -> None:
        """Observe what is left, if nothing is to be done any more."""
        if self._recorder is not None:
            self._recorder.finish()
            if self.drained():
                self._recorder.drained(self.flights.left())

    def close(self) -> None:
        """Leave the engine as it was, for others if it has drained."""
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
