"""Session: one trace on one vLLM engine, step by step.

Before a step, events become calls that a server makes (add or abort a request, reset the prefix cache), or changes
inside the scheduler (preempt a request, do not schedule it for some steps). `control` handles pauses and the like.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from scenarios.events import Abort, AnyEvent, DisturbTransfer, EndSession, Preempt, ResetPrefixCache, Stall, Submit
from workers.targets.child.answers import Delivery
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.control import ControlPlane, SessionServices
from workers.targets.vllm.inside.drafting import drafter_of
from workers.targets.vllm.inside.plans import PlanRecorder
from workers.targets.vllm.inside.recorder import runner_of, runners_of
from workers.targets.vllm.inside.requests import add_to_engine, request_of
from workers.targets.vllm.inside.transfer.engine import flights_of
from workers.targets.vllm.inside.transfer.flights import discard_observation
from workers.targets.vllm.request_features import Text, delivered_output, has_text

# Bounds on running requests; releases before 0.31.0 have only the first.
_LIMITS = ("max_num_running_reqs", "max_num_active_reqs")
# Submitted to end a session, as a server does; nothing of it is computed.
_END_OF_SESSION = Submit(tick=0, request="end", prompt=(0,), max_tokens=1)


@dataclass(slots=True)
class RequestCount:
    """Counter of requests accepted so far, shared by the sessions of one trace."""

    taken: int = 0


class Session:
    """One trace on one engine; `_ids` maps request names to the engine's latest request ids.

    The engine gets a new id even if a name is reused. `give_back` receives the engine if no request is left.
    """

    def __init__(
        self,
        engine: Any,
        number: int,
        observe: Callable[[Any], PlanRecorder] | None,
        give_back: Callable[[Any], None],
        services: SessionServices,
        count: RequestCount | None = None,
    ) -> None:
        self.engine = engine
        self._give_back = give_back
        self.probes: Counter[str] = Counter()
        self._number = number
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._alive: set[str] = set()
        self._tick = 0
        # Per stalled request: the first tick at which it is scheduled again.
        self._stalled: dict[str, int] = {}
        # Requests preempted by an event, until a step is scheduled without them.
        self._preempted: set[str] = set()
        self._width: dict[str, int] = {}
        self._submits = count or RequestCount()
        # By session: its engine request. By engine request: the parts that wait, and all tokens so far.
        self._sessions: dict[str, str] = {}
        self._parts: dict[str, deque[Submit]] = {}
        self._tokens: dict[str, list[int]] = {}
        # Aborts that arrived during the current step, and all aborted requests.
        self._aborts_in_step: list[str] = []
        self._aborted: set[str] = set()
        # Text by engine request, and requests that a stop word ended in the current step.
        self._texts: dict[str, Text] = {}
        self._stopped: list[str] = []
        scheduler = engine.scheduler
        self._schedule: Callable[..., Any] = scheduler.schedule
        self._preempt: Callable[..., Any] = scheduler._preempt_request
        # Releases before 0.30.0 do not have this method.
        self._validate: Callable[..., list[int]] | None = getattr(
            engine.structured_output_manager, "validate_tokens", None
        )
        scheduler.schedule = self._observed_schedule
        scheduler._preempt_request = self._counted_preemption
        if self._validate is not None:
            engine.structured_output_manager.validate_tokens = self._counted_validation
        self._is_scheduling = False
        # The first runner's batch, whose rows move.
        self._batch: Any = getattr(runner_of(engine), "input_batch", None)
        if self._batch is not None:
            self._condense, self._swap = self._batch.condense, self._batch.swap_states
            self._batch.condense, self._batch.swap_states = self._counted_condense, self._counted_swap
        self._recorder = observe(engine) if observe is not None else None
        self._flights = flights_of(engine)
        # Requests to preempt once no step in flight writes their blocks.
        self._to_preempt: list[str] = []
        if self._flights is not None:
            self._flights.begin(self.probes, self._recorder.note if self._recorder is not None else discard_observation)
        self._control = ControlPlane(self._controlled(), self.probes, services, self._note)

    @property
    def memory(self) -> Mapping[str, object]:
        transfer_memory = self._flights.memory if self._flights is not None else {}
        return {**memory_of(self.engine), **transfer_memory}

    def close(self) -> None:
        """Restore the engine's methods; return the engine to the pool if no request is left."""
        runner = runner_of(self.engine)
        if runner is not None and runner.device.type == "cuda":
            # Errors of asynchronous kernels are raised in this session.
            torch.cuda.synchronize()
        if not self.drained():
            return
        scheduler = self.engine.scheduler
        del scheduler.schedule, scheduler._preempt_request
        if self._validate is not None:
            del self.engine.structured_output_manager.validate_tokens
        if self._batch is not None:
            del self._batch.condense, self._batch.swap_states
        if self._recorder is not None:
            self._recorder.release()
        self._control.close()
        if not self._control.is_modified:
            self._give_back(self.engine)

    def happen(self, event: AnyEvent) -> None:
        if self._control.happen(event):
            return
        match event:
            case Submit():
                self._submit(event)
            case Abort():
                self._abort(event)
            case EndSession(session=session):
                if self._sessions.get(session) in self.engine.scheduler.requests:
                    self._add(self._sessions[session], _END_OF_SESSION, resumable=False)
            case Preempt(request=name):
                self._preempt_now(name)
            case ResetPrefixCache(running=running):
                self.probes["cache_reset"] += 1
                # vLLM refuses to preempt all requests while a transfer or a step in flight uses their blocks.
                running &= self._flights is None or not (self._flights.holds_blocks or self._is_held())
                if self.engine.reset_prefix_cache(reset_running_requests=running) or running:
                    self._control.cleared()
            case Stall(request=name, ticks=ticks):
                if self._ids.get(name) in self._alive:
                    self.probes["stall"] += 1
                    until = self._tick + ticks
                    self._stalled[self._ids[name]] = max(until, self._stalled.get(self._ids[name], 0))
            case DisturbTransfer(request=name):
                if self._flights is not None and self._ids.get(name) in self._alive:
                    self._flights.disturb(event, self._ids[name])
            case _:
                raise ValueError(f"{event.do} is not an event of this engine")

    def _is_held(self) -> bool:
        """Return whether a step is in flight, or a waiting request holds blocks (e.g. for a load)."""
        scheduler = self.engine.scheduler
        waiting = scheduler.requests.keys() - {request.request_id for request in scheduler.running}
        blocks = (group for name in waiting for group in scheduler.kv_cache_manager.get_block_ids(name))
        return bool(self.engine.batch_queue) or any(blocks)

    def step(self) -> list[Delivery]:
        self.begin_step()
        outputs, executed = self.engine.step_fn()
        self.engine.post_step(executed)
        return self.end_step(outputs or {}, executed)

    def begin_step(self) -> None:
        """Apply the events that are pending until the beginning of a step."""
        if self._flights is not None:
            self._flights.tick = self._tick
            to_preempt, self._to_preempt = self._to_preempt, []
            for request_id in to_preempt:
                self._preempt_now(self._names[request_id])
        self._control.settle()

    def end_step(self, outputs: Mapping[int, Any], executed: bool) -> list[Delivery]:
        """Return what a step delivered to clients; `executed`: the step ran the model."""
        # A server's loop also handles these aborts again, together with all others.
        self._abort_requests(self._aborts_in_step)
        self._aborts_in_step.clear()
        self._control.stepped(executed)
        self._tick += 1
        # The outputs of requests that a pause aborted are in a queue of their own.
        queued = [self.engine.output_queue.get_nowait()[1] for _ in range(self.engine.output_queue.qsize())]
        deliveries = [self._delivery_of(output) for each in (*queued, *outputs.values()) for output in each.outputs]
        # A server aborts them after it has processed all outputs.
        self._abort_requests(self._stopped)
        self._stopped.clear()
        if self._recorder is not None:
            self._recorder.stepped()
        return deliveries

    def seen(self) -> list[Message]:
        if self._recorder is None:
            return []
        return self._recorder.take()

    def ended(self) -> None:
        if self._recorder is None:
            return
        self._recorder.finish()
        if self.drained():
            self._recorder.drained(self._flights.left() if self._flights is not None else {})

    def drained(self) -> bool:
        return not (self.engine.scheduler.has_requests() or self.engine.batch_queue or self._control.is_busy)

    def _controlled(self) -> Any:
        """Return the object with the control methods: pause, sleep, resume and others."""
        return self.engine

    def _note(self, what: str, version: int, tokens: Sequence[int]) -> None:
        if self._recorder is not None:
            self._recorder.controlled(what, version, tokens)

    def _submit(self, event: Submit) -> None:
        if self._ids.get(event.request) in self._alive:
            return
        session = event.session
        engine_request = self._sessions.get(session) if session is not None else None
        if engine_request is not None and engine_request in self.engine.scheduler.requests:
            self._parts[engine_request].append(event)
            self.probes["session_part_queued"] += engine_request in self._alive
            self._add(engine_request, event, resumable=True)
            if engine_request not in self._alive:
                self._begin_session_input(engine_request)
            return
        request_id = f"{self._number}-{self._submits.taken}"
        if session is not None:
            assert isinstance(event.prompt, tuple), "the trace is explicit"
            # A pause may have ended the session between two parts: the next part then repeats the whole prompt.
            before = self._tokens[engine_request][:-1] if engine_request is not None else ()
            event = event.model_copy(update={"prompt": (*before, *event.prompt)})
            self._sessions[session], self._parts[request_id] = request_id, deque()
        self.probes["name_reused"] += event.request in self._ids
        self._take(request_id, event, ())
        self._add(request_id, event, resumable=session is not None)

    def _begin_session_input(self, request_id: str) -> None:
        """Begin the next input of a streaming session, under the same engine request id."""
        self.probes["session_part"] += 1
        self._take(request_id, self._parts[request_id].popleft(), self._tokens[request_id][:-1])

    def _take(self, request_id: str, event: Submit, before: Sequence[int]) -> None:
        """Map a trace's request to an engine request that already has the tokens `before`."""
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        self._submits.taken += 1
        self._ids[event.request] = request_id
        self._names[request_id] = event.request
        self._alive.add(request_id)
        named = event.params.logprob_tokens
        self._width[request_id] = 1 + len(named) if named else event.params.num_logprobs
        self._tokens[request_id] = [*before, *event.prompt]
        if has_text(event):
            tokenizer = self.engine.structured_output_manager.tokenizer
            self._texts[request_id] = Text(tokenizer, request_of(request_id, event))

    def _add(self, request_id: str, event: Submit, *, resumable: bool) -> None:
        """Add a request, or a further input of a streaming session, to the engine."""
        add_to_engine(self.engine, request_id, event, self._submits.taken, resumable=resumable)

    def _abort_requests(self, request_ids: list[str]) -> None:
        """Abort requests between two steps."""
        self.engine.abort_requests(request_ids)

    def _abort(self, event: Abort) -> None:
        request_id = self._ids.get(event.request)
        if request_id is None or request_id not in self._alive:
            return
        self.probes["abort"] += 1
        self.probes["abort_in_flight"] += bool(self.engine.batch_queue) or event.at != "before_schedule"
        self._alive.discard(request_id)
        self._aborted.add(request_id)
        if self._flights is not None:
            self._flights.aborted.add(request_id)
        if event.at == "before_schedule":
            self._abort_requests([request_id])
        else:
            # A server's input thread also puts it there, for the processing of results.
            self.engine.aborts_queue.put_nowait([request_id])
            self._aborts_in_step.append(request_id)

    def _preempt_now(self, name: str) -> None:
        scheduler = self.engine.scheduler
        request = scheduler.requests.get(self._ids.get(name))
        if request is None or request not in scheduler.running:
            return
        if self._flights is not None and not scheduler._request_blocks_can_be_freed(request):
            # vLLM does not preempt a request if a step in flight writes its blocks: stall it for one step, then preempt
            # it.
            self._to_preempt.append(request.request_id)
            self._stalled[request.request_id] = max(self._tick + 1, self._stalled.get(request.request_id, 0))
            return
        scheduler.running.remove(request)
        scheduler._preempt_request(request, 0.0)
        # vLLM does not readmit a request in the step that preempts it, at whatever point.
        self._preempted.add(request.request_id)

    def _counted_preemption(self, request: Any, *arguments: Any, **options: Any) -> None:
        self.probes["preemption"] += 1
        self.probes["preemption_by_blocks"] += self._is_scheduling
        self.probes["preemption_in_flight"] += bool(self.engine.batch_queue)
        manager, is_recorded = self.engine.scheduler.kv_cache_manager, self._is_scheduling and self._flights is not None
        groups = manager.get_block_ids(request.request_id) if is_recorded else ()
        own = [block for blocks in groups for block in blocks if manager.block_pool.blocks[block].ref_cnt == 1]
        self._preempt(request, *arguments, **options)
        if is_recorded and self._recorder is not None:
            kept = [block for block in own if manager.block_pool.blocks[block].ref_cnt]
            self._recorder.note("preempted", [request.request_id], kept=kept)

    def _counted_validation(self, request: Any, drafts: list[int], *arguments: Any, **options: Any) -> list[int]:
        assert self._validate is not None, "only wrapped if it exists"
        proposed = sum(token >= 0 for token in drafts)
        kept = self._validate(request, drafts, *arguments, **options)
        if request.use_structured_output:
            self.probes["grammar_drafts"] += bool(kept)
            self.probes["grammar_cut"] += len(kept) < proposed
        return kept

    def _observed_schedule(self, *arguments: Any, **options: Any) -> Any:
        self._is_scheduling = True
        try:
            return self._schedule_without_stalled(*arguments, **options)
        finally:
            self._is_scheduling = False

    def _counted_condense(self, *arguments: Any, **options: Any) -> None:
        before = dict(self._batch.req_id_to_index)
        self._condense(*arguments, **options)
        has_moved = before != self._batch.req_id_to_index
        self.probes["condense"] += has_moved
        self.probes["condense_in_flight"] += has_moved and bool(self.engine.batch_queue)

    def _counted_swap(self, *arguments: Any, **options: Any) -> None:
        self.probes["reorder"] += 1
        self._swap(*arguments, **options)

    def _schedule_without_stalled(self, *arguments: Any, **options: Any) -> Any:
        """Schedule a step without the stalled requests, which keep their batch rows."""
        scheduler = self.engine.scheduler
        stalled = {request_id for request_id, until in self._stalled.items() if until > self._tick} | self._preempted
        self._preempted.clear()
        if not stalled:
            plan = self._schedule(*arguments, **options)
            self._count(plan)
            if self._recorder is not None:
                self._recorder.waiting(plan)
            return plan
        before = list(scheduler.running)
        hidden = [request for request in before if request.request_id in stalled]
        waiting = [request for request in scheduler.waiting if request.request_id in stalled]
        scheduler.running = [request for request in before if request.request_id not in stalled]
        scheduler.waiting.remove_requests(waiting)
        limits = {name: getattr(scheduler, name) for name in _LIMITS if hasattr(scheduler, name)}
        for name, limit in limits.items():
            setattr(scheduler, name, limit - len(hidden))
        try:
            plan = self._schedule(*arguments, **options)
        finally:
            for name, limit in limits.items():
                setattr(scheduler, name, limit)
            still = {request.request_id for request in (*scheduler.running, *hidden)}
            old = [request for request in before if request.request_id in still]
            new = [request for request in scheduler.running if request not in before]
            scheduler.running = old + new
            for request in reversed(waiting):
                scheduler.waiting.prepend_request(request)
        self._count(plan)
        return plan

    def _count(self, plan: Any) -> None:
        """Record a scheduled step, and count its probes, such as resumed requests."""
        if self._recorder is not None:
            self._recorder.scheduled(plan)
        self.probes["empty_step"] += not plan.total_num_scheduled_tokens
        requests = self.engine.scheduler.requests
        # The second runner receives resumed requests as new ones.
        again = sum(requests[new.req_id].num_preemptions > 0 for new in plan.scheduled_new_reqs)
        self.probes["admit"] += len(plan.scheduled_new_reqs) - again
        self.probes["resume"] += len(plan.scheduled_cached_reqs.resumed_req_ids) + again
        chunks = [name for name in plan.num_scheduled_tokens if requests[name].is_prefill_chunk]
        self.probes["grammar_wait"] += plan.pending_structured_output_tokens
        self.probes["discard"] += len(chunks)
        self.probes["discard_while_drafting"] += bool(chunks and plan.scheduled_spec_decode_tokens)

    def _delivery_of(self, output: Any) -> Delivery:
        """Convert an engine output to a delivery to the client; note the end of the request."""
        request_id = output.request_id
        new = delivered_output(output, self._width[request_id])
        text = self._texts.get(request_id)
        if text is not None:
            new = text.delivered(new)
            if text.has_stopped:
                self.probes["stop_word"] += 1
                self._stopped.append(request_id)
        self._tokens[request_id] += new.tokens
        name = self._names[request_id]
        if new.finish_reason is not None:
            self._end(request_id)
        return Delivery(request=name, output=new, is_late=request_id in self._aborted)

    def _end(self, request_id: str) -> None:
        """Mark a request as ended; begin the next input of its streaming session, if one waits."""
        self._alive.discard(request_id)
        if request_id not in self.engine.scheduler.requests:
            self._parts.pop(request_id, None)
        elif self._parts.get(request_id):
            self._begin_session_input(request_id)


def submit_of(request_id: str) -> int:
    """Return the submit number at the end of an engine request id."""
    return int(request_id.rpartition("-")[2])


def memory_of(engine: Any) -> Mapping[str, object]:
    """Return the objects whose attributes hold the engine's tensors, by name in reports."""
    found: dict[str, object] = {}
    for name, runner in runners_of(engine).items():
        drafter = drafter_of(runner)
        # The first name of a tensor counts: name the drafter's caches before the target's.
        cached = {f"{name}drafter": SimpleNamespace(caches=drafter.caches)} if drafter is not None else {}
        found |= {**cached, f"{name}runner": runner}
    return found
