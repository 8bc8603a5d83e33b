"""One single-threaded host of engines: judge a trace, under its own schedule or under a sweep of them."""

from scenarios.events import LANES, Schedule
from scenarios.trace import Trace
from workers.check import Options, check
from workers.lanes.policies import lane_orders
from workers.tape import Tapes
from workers.verdict import Agreed, Difference, Diverged, Judgement, Outcome, Stuck, Vacuous, Verdict

NUM_RANDOM = 20


def name_of(schedule: Schedule) -> str:
    """Return a short name of a schedule."""
    match schedule.policy:
        case "lane_order":
            return " > ".join(schedule.order)
        case "random":
            return f"random {schedule.seed}"
        case policy:
            return str(policy)


def fixed_schedules() -> list[Schedule]:
    """Return eager, lazy and 24 lane orders in which every pair of lanes occurs in both orders."""
    orders = [Schedule(policy="lane_order", order=order) for order in lane_orders(LANES)]
    return [Schedule(policy="eager"), Schedule(policy="lazy"), *orders]


def all_schedules() -> list[Schedule]:
    """Return the fixed schedules and 20 random ones."""
    return fixed_schedules() + [Schedule(policy="random", seed=seed) for seed in range(NUM_RANDOM)]


class Worker:
    """Judges traces one at a time; what it keeps between them (tapes) changes no verdict."""

    def __init__(self) -> None:
        self._tapes = Tapes()

    def judge(self, trace: Trace, sweep: bool) -> Judgement:
        """Run a trace under its own schedule, or with `sweep` under every fixed schedule and 20 random ones.

        All schedules of a sweep must capture the same bytes. A finding is explained by running it again: which of
        the fixed schedules show it, and who wrote the value last. A run that found only a race is searched for a
        schedule in which the race does harm, and the trace returned is that one.
        """
        trace = trace.explicit()
        if not sweep:
            verdict = check(trace, self._tapes)
            return self._found(trace, verdict, 1)
        return self._sweep(trace)

    def _sweep(self, trace: Trace) -> Judgement:
        first: Agreed | None = None
        ahead = 0
        schedules = [each.model_copy(update={"holds": trace.schedule.holds}) for each in all_schedules()]
        for tried, schedule in enumerate(schedules, 1):
            candidate = trace.model_copy(update={"schedule": schedule})
            verdict = check(candidate, self._tapes, Options(races=tried == 1))
            if not isinstance(verdict, Agreed):
                return self._found(candidate, verdict, tried)
            ahead = max(ahead, verdict.stats.run_ahead_max)
            first = first or verdict
            if verdict.stats.digest != first.stats.digest:
                return self._found(candidate, _differs(verdict, first, schedule), tried)
        assert first is not None
        stats = first.stats.model_copy(update={"run_ahead_max": ahead})
        return Judgement(verdict=Agreed(stats=stats), trace=trace, schedules=len(schedules))

    def _found(self, trace: Trace, verdict: Verdict, tried: int) -> Judgement:
        if isinstance(verdict, Agreed | Vacuous):
            return Judgement(verdict=verdict, trace=trace, schedules=tried)
        outcomes, worst = self._outcomes(trace)
        harmless = isinstance(verdict, Diverged) and verdict.difference.plane == "races"
        if harmless and worst is not None:
            trace = trace.model_copy(update={"schedule": worst})
        if isinstance(verdict, Diverged | Stuck):
            again = check(trace, self._tapes, Options(blame=True))
            verdict = again if not isinstance(again, Agreed) else verdict
        return Judgement(verdict=verdict, trace=trace, schedules=tried + len(outcomes), outcomes=outcomes)

    def _outcomes(self, trace: Trace) -> tuple[tuple[Outcome, ...], Schedule | None]:
        """Run the fixed schedules without the race detector; return how each ended, and the first that shows harm."""
        outcomes, worst = [], None
        for schedule in fixed_schedules():
            verdict = check(trace.model_copy(update={"schedule": schedule}), self._tapes, Options(races=False))
            agrees = isinstance(verdict, Agreed | Vacuous)
            if not agrees and worst is None:
                worst = schedule
            outcomes.append(Outcome(schedule=name_of(schedule), agrees=agrees, result=summary(verdict)))
        return tuple(outcomes), worst


def summary(verdict: Verdict) -> str:
    """Return a verdict's kind and the first thing that is wrong, in a few words."""
    match verdict:
        case Diverged(difference=difference):
            return f"diverged: {difference.variable} of {difference.commit or 'no request'} at step {difference.step}"
        case Stuck(reason=reason):
            return f"stuck: {reason}"
        case Agreed() | Vacuous():
            return "agreed"
        case _:
            return verdict.kind


def _differs(verdict: Agreed, first: Agreed, schedule: Schedule) -> Diverged:
    difference = Difference(
        plane="determinism",
        variable="captures",
        request="",
        commit="",
        step=-1,
        position=None,
        expected=f"{first.stats.digest} as under eager",
        actual=f"{verdict.stats.digest} under {name_of(schedule)}",
    )
    return Diverged(stats=verdict.stats, difference=difference)
