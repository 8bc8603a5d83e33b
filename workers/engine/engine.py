"""The loop: one FIFO of steps in flight, of which at most `depth` are not yet processed.

At depth 1 a step is processed before the next is scheduled; at depth 2 the host schedules and prepares a step while
the device runs the one before.
"""

from collections import deque
from collections.abc import Sequence

from scenarios.draw import draw
from scenarios.events import (
    Abort,
    AnyEvent,
    NanLogits,
    NoValidToken,
    Place,
    Preempt,
    Reorder,
    ResetPrefixCache,
    SetK,
    Stall,
    Submit,
)
from scenarios.spec import EngineSpec
from workers.engine import host_observations as shown
from workers.engine.grammar_rules import keep_drafts
from workers.engine.logprobs import TokenLogprobs, wanted_logprobs
from workers.engine.parts import Parts
from workers.engine.request import Request
from workers.engine.runner import Runner
from workers.engine.scheduler import Scheduler
from workers.engine.step import Step
from workers.lanes.lane import Machine
from workers.record.log import Aborted, Entry, Processed, Submitted
from workers.record.observation import Observation, Recorder


class Engine:
    """One engine: hand it a trace's events and call `step` until it is `drained`.

    `log` takes decisions and host observations in order; `probes` counts what happened.
    `scripts` holds, for each submit among the events, the token its drafter proposes at each position.
    """

    def __init__(
        self,
        spec: EngineSpec,
        events: Sequence[AnyEvent],
        scripts: Sequence[list[int]],
        parts: Parts,
        machine: Machine,
        recorder: Recorder,
        probes: dict[str, int],
        seed: int = 0,
    ) -> None:
        self.log: list[Entry | Observation] = []
        self.tick = 0
        self.num_commits = 0
        self.run_ahead_max = 0
        self.num_submitted = 0
        self.requests: dict[str, Request] = {}
        self.scheduler = Scheduler(spec, parts, self.log, probes)
        self.runner = Runner(spec, parts, machine, recorder, self.log, probes)
        self.scheduler.on_release = self.runner.release
        self.probes = probes
        self._spec = spec
        self._must_process = parts.must_process
        self._reason_of_abort = parts.reason_of_abort
        self._seed = seed
        self._machine = machine
        self._flying: deque[Step] = deque()
        self._reorder: Reorder | None = None
        self._scripts = scripts
        self._events: dict[tuple[int, Place], list[tuple[AnyEvent, int]]] = {}
        num_submits = 0
        for event in events:
            self._events.setdefault((event.tick, event.at), []).append((event, num_submits))
            num_submits += isinstance(event, Submit)
        self.last_tick = max((event.tick for event in events), default=-1)

    def drained(self) -> bool:
        """Tell whether nothing is left to do: no event to come, no request alive, no step in flight."""
        return (
            self.tick > self.last_tick
            and not self.scheduler.has_requests()
            and not any(step.rows for step in self._flying)
        )

    def left_over(self) -> Observation:
        """Show what the host still holds; once it has drained this is to be nothing."""
        return shown.drained(self.tick, self.scheduler, self.requests.values(), self.runner.host_drafts.requests)

    def step(self) -> None:
        """Schedule and launch one step; process the oldest if `depth` are in flight."""
        self._machine.step = self.scheduler.tick = self.tick
        self._happen("before_schedule")
        self._machine.point("schedule")
        begun = self._machine.step_begun
        self.run_ahead_max = max(self.run_ahead_max, sum(step.number > begun for step in self._flying if step.rows))
        plan = self.scheduler.schedule(self.tick)
        self.log.append(shown.scheduled(self.tick, self.scheduler))
        permute: Permutation | None = None
        if self._reorder is not None and plan.rows:
            permute, self._reorder = Permutation(self._reorder.how, self._seed, self.tick), None
        self.probes["gap"] += self._gaps()
        self.probes["full_batch"] += len(plan.rows) == self._spec.max_num_seqs
        self.probes["discard_while_drafting"] += any(row.discard for row in plan.rows) and any(
            row.d for row in plan.rows
        )
        self._flying.append(self.runner.launch(plan, permute))
        self._happen("after_launch")
        ready = self._must_process(len(self._flying), self._spec.depth)
        if ready:
            self._machine.point("wait_output")
            outputs = self.runner.output(self._flying[0])
        self._happen("before_process")
        if ready:
            self._process(self._flying.popleft(), outputs)
        self.tick += 1

    def _process(self, step: Step, outputs: Sequence[Sequence[int]]) -> None:
        self._machine.point("process")
        self.log.append(Processed(step.number))
        logprobs, on_device = self.runner.logprobs(step, outputs), self.runner.drafts(step)
        if on_device is not None:
            keep_drafts(step.rows, on_device)
        delivered = tuple(self.scheduler.process(row, sampled) for row, sampled in zip(step.rows, outputs, strict=True))
        self.num_commits += len(delivered)
        self._count_random(step, outputs)
        wanted: tuple[TokenLogprobs, ...] | None = None
        if logprobs is not None:
            # What a request does not take of its tokens, past a stop, has no logprobs either.
            wanted = tuple(
                wanted_logprobs(row.request.params.num_logprobs, found[: len(taken)])
                for row, found, taken in zip(step.rows, logprobs, delivered, strict=True)
            )
        drafts = self.runner.host_drafts.propose(step, delivered, on_device)
        if drafts is not None:
            keep_drafts(step.rows, drafts)
        self.log.append(shown.processed(step, delivered, wanted, drafts, self.scheduler))

    def _count_random(self, step: Step, outputs: Sequence[Sequence[int]]) -> None:
        for row, sampled in zip(step.rows, outputs, strict=True):
            if row.request.has_params and row.request.params.temperature:
                self.probes["random_accept"] += len(sampled) > 1
                self.probes["random_reject"] += 0 < len(sampled) <= row.d

    def _gaps(self) -> int:
        """Count requests that could go on and are left out after they were sampled in the step before."""
        previous = self.runner.batch.previous
        return sum(
            request.last_step != self.tick
            and (request.index, request.epoch) in previous
            and not self.scheduler.is_near_limit(request)
            for request in self.scheduler.running
        )

    def _happen(self, place: Place) -> None:
        for event, submit in self._events.get((self.tick, place), ()):
            self._apply(event, submit)

    def _apply(self, event: AnyEvent, submit: int) -> None:
        match event:
            case Submit(request=name):
                before = self.requests.get(name)
                if before is None or before.finish_reason is not None:
                    self._submit(event, submit)
            case Reorder():
                self._reorder = event
            case SetK(k=k):
                k = min(k, self._spec.num_speculative_tokens)
                self.probes["k_change"] += k != self.scheduler.k_step
                self.probes["k_again"] += k > 0 == self.scheduler.k_step and bool(self.scheduler.running)
                self.scheduler.k_step = k
            case ResetPrefixCache(running=running):
                self.scheduler.reset_cache(running)
            case Abort(request=name):
                self._abort(self.requests.get(name))
            case Preempt() | Stall() | NoValidToken() | NanLogits():
                request = self.requests.get(event.request)
                if request is not None and request.finish_reason is None:
                    self._apply_to(event, request)

    def _abort(self, request: Request | None) -> None:
        if request is None:
            return
        reason = self._reason_of_abort(request)
        if request.finish_reason is not None:
            # A step of it that is in flight still brings its end to the client.
            self.probes["abort_too_late"] += request.num_in_flight > 0
            request.finish_reason = reason
            return
        self.log.append(Aborted(request.index, self.tick))
        self.probes["abort"] += 1
        self.probes["abort_in_flight"] += request.num_in_flight > 0
        self.scheduler.finish(request, reason)

    def _apply_to(self, event: Preempt | Stall | NoValidToken | NanLogits, request: Request) -> None:
        match event:
            case Preempt(mode=mode):
                if request.running:
                    self.scheduler.preempt(request, "event", mode)
            case Stall(ticks=ticks):
                first = self.tick + (event.at != "before_schedule")
                request.stalled_until = max(request.stalled_until, first + ticks)
            case NoValidToken():
                request.invalid_next = True
            case NanLogits():
                request.spoiled_next = True

    def _submit(self, event: Submit, submit: int) -> None:
        prompt = event.prompt
        assert isinstance(prompt, tuple), "the trace is explicit"
        request = Request(
            index=self.num_submitted,
            name=event.request,
            tokens=list(prompt),
            num_prompt=len(prompt),
            length_limit=self._spec.length_limit(len(prompt), event.max_tokens),
            stop=frozenset(event.stop),
            script=self._scripts[submit],
            priority=event.priority,
            params=event.params,
        )
        self.num_submitted += 1
        self.probes["name_reused"] += event.request in self.requests
        self.requests[event.request] = request
        self.log.append(Submitted(request.index, submit, self.tick))
        for edge in _edges(len(prompt), self._spec):
            self.probes["prompt_" + edge] += 1
        self.scheduler.add(request)


class Permutation:
    """How the rows of a batch are put in another order: maps a number of rows to the old row of each new one."""

    def __init__(self, how: str, seed: int, tick: int) -> None:
        self._how = how
        self._seed = seed
        self._tick = tick

    def __call__(self, count: int) -> Sequence[int]:
        """Return the old row of each new one."""
        match self._how:
            case "reverse":
                return range(count - 1, -1, -1)
            case "rotate":
                return [*range(1, count), 0]
            case _:
                key = str(self._tick)
                return sorted(range(count), key=lambda row: draw(self._seed, "shuffle", key, row))


def _edges(length: int, spec: EngineSpec) -> list[str]:
    """Name the boundaries a prompt length sits on."""
    k, block = spec.num_speculative_tokens, spec.block_size
    edges = {
        "one": 1,
        "k": k,
        "k_plus_1": k + 1,
        "block_minus_1": block - 1,
        "block": block,
        "block_plus_1": block + 1,
    }
    return [name for name, edge in edges.items() if edge == length] or ["other"]
