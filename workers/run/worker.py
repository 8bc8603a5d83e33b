"""Worker: one single-threaded host of engines, which judges a trace under its own schedule or a sweep of them."""

from collections.abc import Callable

from scenarios.events import Schedule
from scenarios.shards import Shard
from scenarios.trace import Trace
from workers.oracle.tape import Tapes
from workers.record.evidence import RACES, MissingOrder, fact
from workers.record.verdict import (
    NO_STATS,
    Agreed,
    Crashed,
    Diverged,
    Judgement,
    Outcome,
    Stuck,
    Vacuous,
    Verdict,
    is_finding,
    missing_order_of,
    with_known,
    with_missing_order,
)
from workers.run.check import check
from workers.run.engine_run import Confirm, Options
from workers.run.known_bugs import KnownBugs
from workers.run.references import References
from workers.run.schedules import differs, has_lanes, schedules_on
from workers.run.shard import ShardReport, first_alike, judge_shard
from workers.shrink.fingerprint import Signature
from workers.shrink.shrinker import Tried
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Worker:
    """Judges traces one at a time; what it keeps between them (tapes) changes no verdict.

    `confirm` says when the findings of `judge` are confirmed by a slower run.
    """

    def __init__(self, confirm: Confirm = "now") -> None:
        self._tapes = Tapes()
        self._confirm = confirm
        self._known_bugs = KnownBugs(self._tapes)

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Run a trace under its own schedule, or with `sweep` under those of its device; explain what is found.

        All schedules of a sweep must capture the same bytes. The trace returned has the schedule that shows the
        finding; for a race it is one under which the race does harm, if one of the fixed schedules is.
        """
        trace = trace.explicit()
        if not trace.events:
            nothing = Vacuous(stats=NO_STATS, missing=(fact("no_event"),))
            return Judgement(verdict=nothing, trace=trace, schedules=0)
        # Run, compare and confirm, under one schedule after the other.
        if sweep:
            trace, verdict, tried = self._swept(trace, config)
        else:
            verdict, tried = check(trace, self._tapes, Options(confirm=self._confirm), config=config), 1
        if isinstance(verdict, Agreed | Vacuous):
            return Judgement(verdict=verdict, trace=trace, schedules=tried)
        # Explain: which fixed schedules show it, who wrote the value last, which race came before, which bug is known.
        outcomes, worst = self._outcomes(trace, config)
        order = missing_order_of(verdict)
        is_harmless = isinstance(verdict, Diverged) and verdict.difference.plane == RACES
        if is_harmless and worst is not None:
            trace = trace.model_copy(update={"schedule": worst})
        verdict = explained(verdict, trace, self._tapes, config, self._confirm)
        verdict = with_missing_order(verdict, order or self._race_before(verdict, trace, config))
        verdict = with_known(verdict, self._known_bugs.of(verdict, trace, config))
        return Judgement(verdict=verdict, trace=trace, schedules=tried + len(outcomes), outcomes=outcomes)

    def hunt(
        self,
        shard: Shard,
        begin: Callable[[Trace], None],
        config: RunConfig = DEFAULT_CONFIG,
        *,
        to_first_finding: bool = False,
    ) -> ShardReport:
        """Judge a shard of generated traces as `judge_shard` does."""
        return judge_shard(shard, self._tapes, begin, config, to_first_finding=to_first_finding)

    def attempt(self, candidates: list[Trace], target: Signature, config: RunConfig = DEFAULT_CONFIG) -> Tried:
        """Try candidates of the shrinker in order until one fails as the target does."""
        return first_alike(candidates, target, self._tapes, config)

    def _swept(self, trace: Trace, config: RunConfig) -> tuple[Trace, Verdict, int]:
        """Check a trace under one schedule after the other; return the first with a finding, and how many ran."""
        first: Agreed | None = None
        ahead = 0
        compared = References()
        schedules = [each.model_copy(update={"holds": trace.schedule.holds}) for each in schedules_on(config)]
        for tried, schedule in enumerate(schedules, 1):
            candidate = trace.model_copy(update={"schedule": schedule})
            options = Options(races=tried == 1, compared=compared, confirm=self._confirm)
            verdict = check(candidate, self._tapes, options, config=config)
            if not isinstance(verdict, Agreed):
                return candidate, verdict, tried
            ahead = max(ahead, verdict.stats.run_ahead_max)
            first = first or verdict
            if verdict.stats.digest != first.stats.digest:
                return candidate, differs(verdict, first, schedule), tried
        assert first is not None, "a device has a schedule"
        stats = first.stats.model_copy(update={"run_ahead_max": ahead})
        return trace, Agreed(stats=stats), len(schedules)

    def _outcomes(self, trace: Trace, config: RunConfig) -> tuple[tuple[Outcome, ...], Schedule | None]:
        """Run the fixed schedules without the race detector; return how each ended, and the first with a finding."""
        outcomes, worst = [], None
        options = Options(races=False, compared=References(), confirm="never")
        for schedule in schedules_on(config, fixed=True):
            verdict = check(trace.model_copy(update={"schedule": schedule}), self._tapes, options, config=config)
            if worst is None and is_finding(verdict):
                worst = schedule
            outcomes.append(Outcome.of(schedule, verdict))
        return tuple(outcomes), worst

    def _race_before(self, verdict: Verdict, trace: Trace, config: RunConfig) -> MissingOrder | None:
        """Return the first race under eager of a trace that ends the engine under another schedule.

        A process that has ended reports no race of its run.
        """
        if not isinstance(verdict, Crashed) or verdict.missing_order:
            return None
        if trace.schedule == Schedule() or not has_lanes(config):
            return None
        eager = trace.model_copy(update={"schedule": Schedule()})
        return missing_order_of(check(eager, self._tapes, Options(confirm="never"), config=config))


def explained(verdict: Verdict, trace: Trace, tapes: Tapes, config: RunConfig, confirm: Confirm = "now") -> Verdict:
    """Return a finding as it is reported: a difference with the last writers of its value, a race with its harm.

    The trace is run again for that; a crash has its place and its race already.
    """
    if not isinstance(verdict, Diverged | Stuck):
        return verdict
    again = check(trace, tapes, Options(blame=True, confirm=confirm), config=config)
    return again if is_finding(again) else verdict
