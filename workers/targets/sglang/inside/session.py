"""Session: one trace on one SGLang scheduler, step by step.

A step is one iteration of the scheduler's event loop. Probes are counted after each step from the scheduler's state:
admitted requests, retractions (preemptions), prefill chunks.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from scenarios.events import Abort, AnyEvent, Pause, Resume, Submit
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message
from workers.targets.sglang.inside.control import Pauses
from workers.targets.sglang.inside.drafting import DrafterObserver, TreeObserver
from workers.targets.sglang.inside.rank_recorder import RankRecorder
from workers.targets.sglang.inside.recorder import Recorder
from workers.targets.sglang.inside.requests import abort_of, deliveries_of, ending, request_of


class Session:
    """One trace on a scheduler, and its requests.

    If the session has drained at its end, it calls `give_back`. Request ids are never reused, and
    none is a prefix of another, because SGLang aborts all requests with a prefix.
    """

    def __init__(
        self, engine: Any, spec: EngineSpec, number: int, observed: bool, give_back: Callable[[], None]
    ) -> None:
        self.probes: Counter[str] = Counter()
        # The scheduler of rank 0, and those of further ranks.
        scheduler, *self._further = engine.schedulers
        self._scheduler, self._spec, self._number, self._give_back = scheduler, spec, number, give_back
        self._observers: list[Recorder | RankRecorder | DrafterObserver | TreeObserver] = []
        self._recorder = self._observe() if observed else None
        self._pauses = Pauses(scheduler, self.probes, self._note)
        self._loop = engine.loop()
        self._outbox = scheduler.ipc_channels.send_to_detokenizer
        # The last request id of each name; the names of running requests by id; the retractions of each request.
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._retractions: Counter[str] = Counter()
        self._begun: set[str] = set()
        # Ids of living requests without an output token, and names of those that were aborted before their first one.
        self._silent: set[str] = set()
        self._aborted: dict[str, str] = {}
        self._num_taken = 0
        self._coming: list[Any] = []
        # Ends of aborted requests that the next step delivers.
        self._ended: list[Delivery] = []
        # Whether the last iteration was idle; in such an iteration SGLang checks its memory.
        self._was_idle = True

    def _observe(self) -> Recorder:
        """Start to record the scheduler's steps and its drafter's inputs."""
        recorder = Recorder(self._scheduler)
        self._observers.append(recorder)
        worker = self._scheduler.draft_worker
        has_model = worker is not None and worker.draft_worker is not None
        if recorder.has_trees:
            self._observers.append(TreeObserver(recorder, of_models=has_model))
        if has_model:
            self._observers.append(DrafterObserver(worker.draft_worker, recorder))
        for rank, scheduler in enumerate(self._further, 1):
            self._observers.append(RankRecorder(scheduler, rank, recorder))
        return recorder

    @property
    def memory(self) -> Mapping[str, object]:
        found: dict[str, object] = {}
        for rank, scheduler in enumerate((self._scheduler, *self._further)):
            name = f"rank {rank}: " if self._further else ""
            worker = scheduler.draft_worker
            drafter = {f"{name}drafter": worker} if worker is not None else {}
            found |= {f"{name}scheduler": scheduler, **drafter}
        return found

    def happen(self, event: AnyEvent) -> None:
        match event:
            case Submit(request=name):
                if self._ids.get(name) not in self._names:
                    self._submit(event)
            case Abort(request=name):
                request_id = self._ids.get(name)
                if request_id in self._names:
                    self.probes["abort"] += 1
                    self.probes["abort_in_flight"] += self._is_in_flight
                    name = self._names.pop(request_id)
                    if request_id in self._silent:
                        self._aborted[request_id] = name
                    if self._pauses.holds(request_id):
                        self._pauses.drop(request_id)
                    else:
                        self._coming.append(abort_of(request_id))
            case Pause():
                self._coming += self._pauses.begin(event, self._is_in_flight)
                if event.mode == "abort":
                    self._abort_all()
            case Resume():
                self._pauses.resume()
            case _:
                raise ValueError(f"{event.do} is not an event of this engine")

    def _submit(self, event: Submit) -> None:
        request_id = f"{self._number:06}-{self._num_taken:06}"
        self._num_taken += 1
        self.probes["name_reused"] += event.request in self._ids
        earlier, self._ids[event.request] = self._ids.get(event.request, ""), request_id
        self._names[request_id] = event.request
        self._silent.add(request_id)
        self._aborted.pop(earlier, None)
        request = request_of(event, request_id, self._spec)
        if self._pauses.are_active:
            self._pauses.hold(request)
        else:
            self._coming.append(request)

    def _abort_all(self) -> None:
        """Abort all requests, including those that wait for the end of a pause.

        Output tokens in flight are dropped, as for other aborts. The scheduler does not know held requests. SGLang's
        front end would keep them, but here their clients abort them.
        """
        for request_id in self._names:
            self._pauses.drop(request_id)
        self._ended += [ending(name) for name in self._names.values()]
        self._names.clear()

    def _note(self, what: str) -> None:
        if self._recorder is not None:
            self._recorder.controlled(what)

    @property
    def _is_in_flight(self) -> bool:
        """Whether the scheduler has launched a step that it has not processed."""
        return self._scheduler.enable_overlap and bool(self._scheduler.result_queue)

    def step(self) -> list[Delivery]:
        coming, self._coming = [*self._coming, *self._pauses.next_messages()], []
        was_in_flight = self._is_in_flight
        self._loop.step(coming)
        self._count(was_in_flight)
        ended, self._ended = self._ended, []
        sent = self._outbox.taken()
        for output in sent:
            self._pauses.receive(output)
        deliveries = [delivery for output in sent for delivery in deliveries_of(output, self._names)]
        for delivery in deliveries:
            if delivery.output.tokens:
                self._silent.discard(self._ids[delivery.request])
            if delivery.output.finish_reason is not None:
                del self._names[self._ids[delivery.request]]
        after_abort = [delivery for output in sent for delivery in deliveries_of(output, self._aborted)]
        late = (each.model_copy(update={"is_late": True}) for each in after_abort if each.output.tokens)
        return [*ended, *deliveries, *late]

    def _count(self, was_in_flight: bool) -> None:
        """Count the probes of the last iteration."""
        scheduler = self._scheduler
        # A stopped scheduler leaves its last batch in this attribute.
        batch = None if scheduler._engine_paused else scheduler.cur_batch_for_debug
        self._was_idle = batch is None and scheduler.is_fully_idle()
        self.probes["empty_step"] += batch is None and not self._was_idle
        for request in (*scheduler.waiting_queue, *(batch.reqs if batch is not None else ())):
            lost = request.retraction_count - self._retractions[request.rid]
            if lost > 0:
                self._retractions[request.rid] += lost
                self._begun.discard(request.rid)
                self.probes["preemption"] += 1
                self.probes["preemption_by_blocks"] += self._spec.policy != "priority" and not scheduler._engine_paused
                self.probes["preemption_in_flight"] += was_in_flight
        if batch is None or not batch.forward_mode.is_extend():
            return
        self.probes["discard"] += scheduler.chunked_req is not None
        for request in batch.reqs:
            if request.rid not in self._begun:
                self._begun.add(request.rid)
                self.probes["resume" if request.retraction_count else "admit"] += 1
                self.probes["prefix_hit"] += request.cached_tokens > 0

    def drained(self) -> bool:
        is_drained = self._was_idle and not self._coming and not self._pauses.are_active
        if is_drained:
            self._loop.settle()
        return is_drained

    def ended(self) -> None:
        self._loop.settle()
        if self._recorder is not None and self.drained():
            self._recorder.drained(self._further)

    def seen(self) -> list[Message]:
        return self._recorder.take() if self._recorder is not None else []

    def close(self) -> None:
        """Return the scheduler for later traces if it has drained; otherwise end its event loop."""
        if self.drained():
            self._loop.end()
            for observer in self._observers:
                observer.release()
            self._give_back()
            return
        # The scheduler is not used again, so its exceptions do not matter.
        with suppress(Exception):
            self._loop.end()
