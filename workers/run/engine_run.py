"""Run one engine under a trace; pass its records to the judges until the first difference.

Does not verify: other schedules of the same trace; outputs of other runs (`check` compares them).
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal, NamedTuple, TypeAlias

from scenarios.events import DisturbTransfer, NoValidToken, Pausing, Stall
from scenarios.sampling import Output
from scenarios.trace import Trace
from workers.judge.checker import Checker
from workers.judge.contracts.delivery import Delivery
from workers.judge.history import History
from workers.judge.judge import Case, shows_plans
from workers.judge.outputs import Outputs
from workers.judge.races import RaceDetector
from workers.lanes.lane import Deadlock, Observer
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import HOST, Access, Difference, MissingOrder, Site
from workers.record.observation import HOST_POINTS, VARIABLES
from workers.record.verdict import Crashed, Diverged, LanesWait, LaneWait, NotDrained, Stats, Stuck
from workers.run.agreed_run import AgreedRun, Repetition
from workers.run.event_feed import EventFeed, scripts_of, with_prompts
from workers.run.panel import Panel, detector_of, first_race_of
from workers.run.references import References
from workers.run.varying_outputs import varying
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, DeviceError, EngineFailed, RunConfig, TargetKind, Watch

# Bounds for an engine that does not log its decisions: steps of a run, and steps in which no request gets a result, in
# addition to those that compute the longest request token by token or hold requests back by events.
STEPS_MAX = 4000
IDLE_MAX = 300


Confirm: TypeAlias = Literal["now", "later", "never"]


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run: checks and records; only `without` changes what the engine does.

    - `races`: check every memory access with the race detector.
    - `blame`: record the last writers of every buffer, and find the harm of a race (slower).
    - `without`: waits and event records to remove, see `workers.lanes.base`.
    - `observe`: returns an observer of the lanes, given the race detector.
    - `compared`: reference runs that several runs of one trace share.
    - `judged`: false if only outputs are wanted; `steps_max`: the bound on steps, if not the usual one.
    - `confirm`: whether a finding is confirmed with slower kernels, for engines that have them: `now`, `later` (it is
      returned as unconfirmed) or `never`.
    """

    races: bool = True
    blame: bool = False
    without: frozenset[tuple[str, str]] = frozenset()
    observe: Callable[[RaceDetector], Observer] | None = None
    compared: References | None = None
    judged: bool = True
    steps_max: int | None = None
    confirm: Confirm = "now"


DEFAULT_OPTIONS = Options()
UNJUDGED = Options(races=False, judged=False)


def digest_of(outputs: Outputs, *, is_exact: bool) -> str:
    """Return a hash of the outputs; of logprobs only if the engine sums floats in a fixed order."""
    if not is_exact:
        outputs = {name: Output(each.tokens, each.finish_reason) for name, each in outputs.items()}
    return blake2b(repr(sorted(outputs.items())).encode(), digest_size=16).hexdigest()


class FinishedRun(NamedTuple):
    """Result of a finished run: first difference, statistics, outputs, accepted requests."""

    found: Difference | None
    stats: Stats
    outputs: Outputs
    history: History
    taken: Sequence[Delivery]


class Run:
    """Run of one trace on one engine, observed by the judges."""

    def __init__(
        self,
        trace: Trace,
        value_cache: ModelValueCache,
        options: Options = DEFAULT_OPTIONS,
        kind: TargetKind | None = None,
        config: RunConfig = DEFAULT_CONFIG,
    ) -> None:
        kind = kind if kind is not None else target_kind(config.engine)
        capabilities = self._capabilities = kind.capabilities_under(config)
        self.trace = trace
        self._options, self._is_exact = options, config.device != "cuda"
        self.detector = detector_of(capabilities) if options.races else None
        scripts = scripts_of(trace, value_cache, capabilities)
        self.target = kind.open(trace, config, self._watch(options))
        self._first_race = first_race_of(self.target, self.detector, capabilities)
        # Judges have no reference to the run: a cycle would keep each engine until the next garbage collection.
        case = Case(trace, value_cache, capabilities, self._first_race if options.races else None)
        self.panel = Panel.of(case) if options.judged else Panel()
        self.feed = EventFeed(trace, self.target, scripts, self.panel.contracts)
        # The bound on steps only grows: it is computed again when the run reaches the last value.
        self._steps_known = 0
        # The number of results so far, and the tick of the last one.
        self._num_results = self._idle_since = 0
        self._idle_max = None if capabilities.logs_decisions else idle_max(trace)

    def _watch(self, options: Options) -> Watch:
        observer = options.observe(self.detector) if options.observe and self.detector else None
        steps = options.judged and shows_plans(self._capabilities)
        return Watch(self.detector, options.blame, options.without, observer, options.races, steps)

    @property
    def checker(self) -> Checker:
        """The judge that compares an engine's logged decisions with the oracle, if it logs them."""
        assert self.panel.checker is not None, "the engine does not log its decisions"
        return self.panel.checker

    def explicit(self) -> Trace:
        """Return the trace with token ids in place of prompts that continue other requests."""
        return with_prompts(self.trace, self.feed.prompts)

    def missing_order(self) -> MissingOrder | None:
        """Return the first race found by the race detector or the engine, or None.

        None also if the engine's process has ended and cannot report it any more.
        """
        try:
            return self._first_race() if self._first_race is not None else None
        except EngineFailed:
            return None

    @property
    def probes(self) -> dict[str, int]:
        """Counts of the situations (probes) that engine and oracle have seen so far."""
        checker = self.panel.checker
        return {**self.target.probes, **(checker.probes if checker is not None else {})}

    def stats(self) -> Stats:
        """Return the statistics of the run so far."""
        progress, checker = self.target.progress(), self.panel.checker
        planes = {*self.panel.planes, "liveness", *(() if checker is not None else ("tokens",))}
        return Stats(
            requests=progress.requests,
            steps=self.feed.tick,
            commits=progress.commits,
            captures=checker.num_compared if checker is not None else 0,
            run_ahead_max=progress.run_ahead_max,
            digest=self.target.digest() if checker is not None else self._digest_of_outputs(),
            probes={name: count for name, count in sorted(self.probes.items()) if count},
            planes=tuple(sorted(planes)),
        )

    def _digest_of_outputs(self) -> str:
        """Return a hash of the outputs that no schedule may change."""
        outputs = self.target.outputs()
        left_out = varying(self.trace, self._capabilities.scripts_drafts)
        return digest_of({name: outputs[name] for name in outputs if name not in left_out}, is_exact=self._is_exact)

    def finish(self) -> FinishedRun | Crashed | Diverged | Stuck:
        """Run to the end and close the engine; return `FinishedRun`, or the verdict of a hang or crash.

        Raises:
            DeviceError: the trace cannot run on that device.
        """
        try:
            ended = self._run_to_end()
        except BaseException:
            self.target.close()
            raise
        try:
            self.target.close()
        except EngineFailed as error:
            # Closing the engine failed; a difference found before is reported first.
            if isinstance(ended, FinishedRun) and ended.found is None:
                return Crashed(stats=ended.stats, error=error_text(error), where=error.where)
        return ended

    def _run_to_end(self) -> FinishedRun | Crashed | Diverged | Stuck:
        compared, checker = self._options.compared, self.panel.checker
        kept = AgreedRun(self.trace, checker) if compared is not None and checker is not None else None
        self.panel.kept = kept.keep if kept is not None else None
        try:
            found = self.to_end()
            if isinstance(found, NotDrained):
                return self._stuck(found)
            if found is None and compared is not None and kept is not None:
                kept.ended(self.target.left_over(), self.target.digest())
                compared.agreed = kept
            explained = self._with_cause(found) if found is not None else None
            taken = self.panel.contracts.taken if self.panel.contracts is not None else []
            return FinishedRun(explained, self.stats(), self.target.outputs(), self.panel.history(), taken)
        except DeviceError:
            raise
        except Exception as error:
            if isinstance(error.__cause__, DeviceError):
                raise error.__cause__ from None
            return self._verdict_of_error(error)

    def repeats(self, agreed: AgreedRun) -> Stats | None:
        """Run the trace while its records equal the records of a correct run; None if one differs.

        Return the statistics if all records are equal and there is no race and no broken contract, else None.
        """
        try:
            return self._compare_steps(agreed)
        finally:
            self.target.close()

    def _compare_steps(self, agreed: AgreedRun) -> Stats | None:
        feed, target, repetition = self.feed, self.target, Repetition(agreed)
        while not feed.drained():
            if feed.tick > agreed.steps:
                return None
            feed.step()
            if not repetition.matches_step(target.take_log(), target.take_captures()):
                return None
        target.drain()
        left, digest = target.left_over(), target.digest()
        is_same = repetition.matches_step(target.take_log(), target.take_captures()) and repetition.matches_end(
            left, digest
        )
        others = tuple(judge for judge in self.panel.judges if judge is not self.panel.checker)
        if not is_same or Panel(others).at_end(target, feed.tick) is not None:
            return None
        # The checker of the agreed run has made all comparisons.
        self.panel = Panel((agreed.checker, *others))
        return self.stats()

    def to_end(self) -> Difference | NotDrained | None:
        """Step the engine until it has drained, a judge finds a difference, or it is stuck."""
        feed, target, panel = self.feed, self.target, self.panel
        while not feed.drained():
            if feed.tick > self._steps_known:
                self._steps_known = self._steps_max()
                if feed.tick > self._steps_known:
                    waiting = panel.checker.referee.waiting() if panel.checker is not None else None
                    return NotDrained(steps=feed.tick, idle=self._idle_steps(), waiting=waiting)
            feed.step()
            found = panel.look(target)
            if found is not None:
                return found
            if self._idle_max is not None and (idle := self._idle_steps()) > self._idle_max:
                return NotDrained(steps=feed.tick, idle=idle)
        target.drain()
        return panel.look(target) or panel.at_end(target, feed.tick)

    def _idle_steps(self) -> int:
        """Return for how many steps there has been neither a result nor an event."""
        num_results = self.target.progress().commits
        if num_results != self._num_results or self.feed.tick <= self.feed.events.last_tick:
            self._num_results, self._idle_since = num_results, self.feed.tick
        return self.feed.tick - self._idle_since

    def _steps_max(self) -> int:
        if self._options.steps_max is not None:
            return self._options.steps_max
        return steps_max(self.trace, self.target.probes) if self._capabilities.logs_decisions else STEPS_MAX

    def _with_cause(self, found: Difference) -> Difference:
        """Return a difference with the last writers of its value, and with the first race."""
        race = found.missing_order or self.missing_order()
        return self._with_writers(found).model_copy(update={"missing_order": race})

    def _with_writers(self, found: Difference) -> Difference:
        """Return a difference with the ops that last wrote its value."""
        writers = found.writers or self.target.last_writers(found.step, found.variable)
        variable = VARIABLES.get(found.variable) if self._capabilities.logs_decisions else None
        if variable is not None and not writers and variable.point in HOST_POINTS:
            writers = (Access(lane=HOST, op=variable.point, step=found.step),)
        return found.model_copy(update={"writers": writers})

    def _stuck(self, waits: NotDrained | LanesWait) -> Stuck:
        """Return the verdict of a run without progress, with the first race if there is one."""
        return Stuck(stats=self.stats(), waits=waits, missing_order=self.missing_order())

    def _verdict_of_error(self, error: Exception) -> Crashed | Diverged | Stuck:
        """Return the verdict for an exception, or for a difference found before it."""
        if isinstance(error, Deadlock):
            lanes = tuple(LaneWait(lane=lane, on=on, step=step) for lane, on, step in error.waits)
            return self._stuck(LanesWait(host=error.host, lanes=lanes))
        found = self.panel.before_crash(self.target)
        if found is not None:
            return Diverged(stats=self.stats(), difference=self._with_cause(found))
        order = self.missing_order()
        before = self.panel.wrong_before_crash(self.target)
        return Crashed(
            stats=self.stats(),
            error=error_text(error),
            where=site_of(error),
            callers=error.callers if isinstance(error, EngineFailed) else (),
            before=self._with_writers(before) if before is not None else None,
            missing_order=order,
        )


def work_of(trace: Trace) -> int:
    """Return how many tokens a trace computes without preemptions."""
    work = 0
    for event in trace.submits():
        assert isinstance(event.prompt, tuple), "the trace is explicit"
        # A request with a grammar waits until each of its steps was processed.
        work += len(event.prompt) + event.max_tokens * (trace.spec.depth if event.params.grammar else 1)
    return work


def steps_max(trace: Trace, probes: Mapping[str, int]) -> int:
    """Return after how many steps a run counts as stuck.

    Preemptions for lack of blocks count at most once per token: each makes room for a request that advances by one.
    """
    samples_taken = sum(isinstance(event, NoValidToken) for event in trace.events)
    held_back = sum(event.ticks for event in trace.events if isinstance(event, Stall))
    last_tick = max((event.tick for event in trace.events), default=-1)
    work, for_blocks = trace.spec.depth + work_of(trace), probes.get("preemption_by_blocks", 0)
    again = 1 + probes.get("preemption", 0) - for_blocks + min(for_blocks, work) + samples_taken
    return last_tick + held_back + work * again


def idle_max(trace: Trace) -> int:
    """Return after how many steps without a result or an event a run counts as stuck.

    Even if requests preempt each other, one of them is computed to its next token; KV loads take some steps more.
    """
    held_back = sum(event.ticks for event in trace.events if isinstance(event, Stall | Pausing | DisturbTransfer))
    return IDLE_MAX + trace.spec.max_model_len + held_back


def error_text(error: Exception) -> str:
    """Return an exception's message, with its type in front unless the engine raised it."""
    return str(error) if isinstance(error, EngineFailed) else f"{type(error).__name__}: {error}"


def site_of(error: Exception) -> Site:
    """Return the source location where an exception was raised."""
    if isinstance(error, EngineFailed):
        return error.where
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return Site(function=frame.name, file=frame.filename.rsplit("/", 1)[-1], line=frame.lineno or 0)
