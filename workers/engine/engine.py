"""Engine loop: schedule, launch, process; up to `depth` launched steps are unprocessed.

At depth 1 a step is processed before the next is scheduled. At depth 2 (async scheduling) the host schedules and
prepares a step while the device runs the previous one.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from scenarios.draw import draw
from scenarios.events import (
    Abort,
    AnyEvent,
    DummyStep,
    Hook,
    NanLogits,
    NoValidToken,
    Preempt,
    Reorder,
    ResetPrefixCache,
    SetK,
    SpoilDraft,
    SpoilLogit,
    Stall,
    Submit,
)
from scenarios.spec import EngineSpec
from workers.engine import host_observations
from workers.engine.functions import EngineFunctions
from workers.engine.grammar_rules import keep_drafts
from workers.engine.logprobs import TokenLogprobs, wanted_logprobs
from workers.engine.observer import EngineObserver
from workers.engine.request import Plan, Request
from workers.engine.runner import ModelRunner
from workers.engine.scheduler import Scheduler
from workers.engine.step import Step
from workers.lanes.lane import Machine
from workers.record.log import Aborted, Entry, Processed, Submitted
from workers.record.observation import Observation, Recorder


class Engine:
    """One engine: `submit` requests, `apply` events, and call `step` until it is `drained`.

    `log` records decisions and host observations in order; `observer` counts what happened.
    """

    def __init__(
        self,
        spec: EngineSpec,
        functions: EngineFunctions,
        machine: Machine,
        recorder: Recorder,
        probes: dict[str, int],
        seed: int = 0,
    ) -> None:
        self.log: list[Entry | Observation] = []
        self.tick = 0
        self.num_submitted = 0
        self.requests: dict[str, Request] = {}
        self.observer = EngineObserver(spec, probes)
        self.scheduler = Scheduler(spec, functions, self.log, self.observer)
        self.runner = ModelRunner(spec, functions, machine, recorder, self.log, self.observer)
        self.scheduler.on_release = self.runner.release
        self._spec = spec
        self._functions = functions
        self._seed = seed
        self._machine = machine
        self._in_flight: deque[Step] = deque()
        self._reorder: Reorder | None = None
        self._is_dummy_due = False

    def drained(self) -> bool:
        """Return whether no request is alive and no step is in flight."""
        return not self.scheduler.has_requests() and not any(step.rows for step in self._in_flight)

    def left_over(self) -> Observation:
        """Observe the requests, blocks and slots that the host still holds.

        It must be nothing once the engine has drained.
        """
        requests, drafts_of = self.requests.values(), self.runner.host_drafts.requests
        return host_observations.observe_drained(self.tick, self.scheduler, requests, drafts_of)

    def step(self, happen: Callable[[Hook], None]) -> None:
        """Schedule and launch a step; then process the oldest if `depth` steps are in flight.

        `happen` is called at each hook of the step where events take effect.
        """
        assert len(self._in_flight) < self._spec.depth, (
            f"{len(self._in_flight)} steps in flight: the rings of pinned memory are full"
        )
        self._machine.step = self.scheduler.tick = self.tick
        happen("before_schedule")
        self._in_flight.append(self._launch(self._schedule()))
        happen("after_launch")
        ready = self._functions.must_process(len(self._in_flight), self._spec.depth)
        outputs = self._wait(self._in_flight[0]) if ready else ()
        happen("before_process")
        if ready:
            self._process(self._in_flight.popleft(), outputs)
        self.tick += 1

    def _schedule(self) -> Plan:
        """Schedule the next step while results of earlier steps are still unknown."""
        self._machine.point("schedule")
        begun = self._machine.step_begun
        plan = self.scheduler.schedule(self.tick)
        self.log.append(host_observations.observe_schedule(self.tick, self.scheduler))
        # If every running request has a row, there are no gaps.
        num_gaps = self._num_gaps() if len(plan.rows) < len(self.scheduler.running) else 0
        self.observer.scheduled(plan.rows, self._in_flight, begun, num_gaps)
        return plan

    def _launch(self, plan: Plan) -> Step:
        """Launch a step; first apply a pending event: permute its rows, or run a dummy step.

        A reorder waits for the next step with rows, a dummy step for the next step without rows.
        """
        assert plan.step == self.tick, f"step {plan.step} launched at tick {self.tick}"
        permute: Callable[[int], Sequence[int]] | None = None
        if self._reorder is not None and plan.rows:
            permute, self._reorder = partial(permutation, self._reorder.how, self._seed, self.tick), None
        is_dummy = self._is_dummy_due and not plan.rows
        self._is_dummy_due &= not is_dummy
        return self.runner.launch(plan, permute, is_dummy)

    def _wait(self, step: Step) -> Sequence[Sequence[int]]:
        """Block until a step's sampled tokens are on the host."""
        self._machine.point("wait_output")
        return self.runner.output(step)

    def _process(self, step: Step, outputs: Sequence[Sequence[int]]) -> None:
        """Append a step's sampled tokens to its live requests."""
        oldest = self.tick - len(self._in_flight)
        assert step.number == oldest, f"step {step.number} processed, but step {oldest} is the oldest in flight"
        self._machine.point("process")
        self.log.append(Processed(step.number))
        logprobs, on_device = self.runner.logprobs(step, outputs), self.runner.drafts(step)
        if on_device is not None:
            keep_drafts(step.rows, on_device)
        delivered = tuple(self.scheduler.process(row, sampled) for row, sampled in zip(step.rows, outputs, strict=True))
        self.observer.committed(step, outputs)
        wanted: tuple[TokenLogprobs, ...] | None = None
        if logprobs is not None:
            # Tokens that a request does not take, because they follow a stop, have no logprobs either.
            wanted = tuple(
                wanted_logprobs(row.request.params.num_logprobs, found[: len(taken)])
                for row, found, taken in zip(step.rows, logprobs, delivered, strict=True)
            )
            for row, values in zip(step.rows, wanted, strict=True):
                row.request.logprobs += values
        drafts = self.runner.host_drafts.propose(step, delivered, on_device)
        if drafts is not None:
            keep_drafts(step.rows, drafts)
        self.log.append(host_observations.observe_results(step, delivered, wanted, drafts, self.scheduler))

    def _num_gaps(self) -> int:
        """Return how many running requests with a row in the previous step have none in this one."""
        previous = self.runner.batch.previous
        return sum(
            request.last_step != self.tick
            and (request.index, request.epoch) in previous
            and not self.scheduler.is_near_limit(request)
            for request in self.scheduler.running
        )

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        """Add a request, unless a request of the same name is alive.

        `script` has the token that a scripted drafter proposes at each position.
        """
        before = self.requests.get(event.request)
        if before is not None and before.finish_reason is None:
            return
        prompt = event.prompt
        assert isinstance(prompt, tuple), "the trace is explicit"
        request = Request(
            index=self.num_submitted,
            name=event.request,
            tokens=list(prompt),
            num_prompt=len(prompt),
            length_limit=self._spec.length_limit(len(prompt), event.max_tokens),
            stop=frozenset(event.stop),
            script=script,
            priority=event.priority,
            params=event.params,
        )
        self.num_submitted += 1
        self.requests[event.request] = request
        self.log.append(Submitted(request.index, submit, self.tick))
        self.observer.submitted(len(prompt), before is not None)
        self.scheduler.add(request)

    def abort(self, name: str) -> None:
        """Abort the live request of this name, if there is one."""
        request = self.requests.get(name)
        if request is None:
            return
        reason = self._functions.abort_reason(request)
        self.observer.aborted(request)
        if request.finish_reason is not None:
            assert not request.running, f"request {name} has ended ({request.finish_reason}) but is still running"
            request.finish_reason = reason
            return
        self.log.append(Aborted(request.index, self.tick))
        self.scheduler.finish(request, reason)

    def apply(self, event: AnyEvent) -> None:
        """Apply an event other than a submit or an abort."""
        assert event.tick == self.tick, f"event of tick {event.tick} applied at tick {self.tick}"
        match event:
            case Reorder():
                self._reorder = event
            case SetK(k=k):
                k = min(k, self._spec.num_speculative_tokens)
                self.observer.k_set(self.scheduler.k_step, k, bool(self.scheduler.running))
                self.scheduler.k_step = k
            case ResetPrefixCache(running=running):
                self.scheduler.reset_cache(running)
            case DummyStep():
                self._is_dummy_due = True
            case Preempt() | Stall() | NoValidToken() | NanLogits() | SpoilLogit() | SpoilDraft():
                request = self.requests.get(event.request)
                if request is not None and request.finish_reason is None:
                    self._apply_to(event, request)
            case Submit() | Abort():
                raise AssertionError(f"use Engine.{event.do}, not Engine.apply")

    def _apply_to(
        self, event: Preempt | Stall | NoValidToken | NanLogits | SpoilLogit | SpoilDraft, request: Request
    ) -> None:
        ended = request.finish_reason
        assert ended is None, f"request {request.name} has ended ({ended}), so {event.do} cannot change it"
        match event:
            case Preempt(mode=mode):
                if request.running:
                    self.scheduler.preempt(request, "event", mode)
            case Stall(ticks=ticks):
                first = self.tick + (event.at != "before_schedule")
                request.stalled_until = max(request.stalled_until, first + ticks)
            case NoValidToken():
                request.spoils_next = request.spoils_next._replace(no_valid_token=True)
            case NanLogits():
                request.spoils_next = request.spoils_next._replace(nan_logits=True)
            case SpoilLogit():
                request.spoils_next = request.spoils_next._replace(logit=event)
            case SpoilDraft():
                request.spoils_next = request.spoils_next._replace(draft=event)


def permutation(how: str, seed: int, tick: int, count: int) -> Sequence[int]:
    """Return a batch permutation for a reorder event: the old row index of each new row."""
    match how:
        case "reverse":
            return range(count - 1, -1, -1)
        case "rotate":
            return [*range(1, count), 0]
        case _:
            return sorted(range(count), key=lambda row: draw(seed, "shuffle", str(tick), row))
