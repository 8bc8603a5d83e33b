"""Verdicts: how a run of a trace ended, as values that are stored and compared."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from scenarios.events import Schedule
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, MissingOrder, Site, fact
from workers.record.log import SkipReason
from workers.record.names import Count


class Work(Value):
    """Amount of work of one run, summed over its steps.

    - `hit_tokens`: tokens in prefix-cache hits of requests that start, not of those that resume.
    - `preemptions`: resumptions of requests. `recomputed_tokens`: tokens that they computed again.
    - `drafts`: draft tokens that were verified. `accepted`: those that were accepted.
    """

    steps: Count = 0
    hit_tokens: Count = 0
    preemptions: Count = 0
    recomputed_tokens: Count = 0
    drafts: Count = 0
    accepted: Count = 0


def sums_of_work(every: Iterable[Mapping[str, Work]]) -> dict[str, Work]:
    """Return the sums of each quantity, by the name of the run."""
    sums: dict[str, Counter[str]] = {}
    for run, work in (pair for each in every for pair in each.items()):
        sums.setdefault(run, Counter()).update(dict(work))
    return {run: Work(**counts) for run, counts in sums.items()}


class Stats(Value):
    """Counts of one run, and the hash of its observations.

    - `commits`: processed results of requests. `captures`: compared device and host observations.
    - `run_ahead_max`: launched steps that the device had not begun when another was scheduled.
    - `digest`: hash of every device capture, in order. `probes`: how often each situation occurred.
    - `planes`: state categories in which something was compared.
    - `work`: amount of work of the runs that were compared: `asynchronous` and `synchronous`, `overlay` and `release`.
    """

    requests: Count
    steps: Count
    commits: Count
    captures: Count
    run_ahead_max: Count
    digest: str
    probes: dict[str, Count]
    planes: tuple[str, ...] = ()
    work: dict[str, Work] = {}


NO_STATS = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})
# The plane (state category) of an exception raised by the engine.
CRASH = "crash"


class Agreed(Value):
    """Verdict: engine and oracle agree, and every expected situation occurred."""

    kind: Literal["agreed"] = "agreed"
    stats: Stats


class Diverged(Value):
    """Verdict: the engine differs from the oracle (the independent reference computation).

    `unconfirmed` says why no slower run of the engine was used to confirm the finding, if one was required; `known`
    names the known bugs of the engine that cause it; `needs` names known bugs: without their fixes the trace agrees.
    The other kinds of findings have these fields too.
    """

    kind: Literal["diverged"] = "diverged"
    stats: Stats
    difference: Difference
    known: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unconfirmed: Fact | None = None


class Crashed(Value):
    """Verdict: the engine raised an exception, on the host or in a device op.

    - `callers`: callers of its source location, nearest first.
    - `before`: the first difference in the steps before. `missing_order`: two unordered accesses before, if found.
    - `made_at`: source locations that computed the data which the failing code uses.
    """

    kind: Literal["crashed"] = "crashed"
    stats: Stats
    error: str
    where: Site
    callers: tuple[Site, ...] = ()
    before: Difference | None = None
    missing_order: MissingOrder | None = None
    made_at: tuple[Site, ...] = ()
    known: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unconfirmed: Fact | None = None


class Waiting(Value):
    """Request that was not scheduled in the last step, and the reason."""

    request: str
    reason: SkipReason


class NotDrained(Value):
    """A run without progress: requests are left after the maximum number of steps.

    In the last `idle` of these steps no request got a result. `waiting` is set for an engine that logs its decisions.
    """

    kind: Literal["not_drained"] = "not_drained"
    steps: int
    idle: int = 0
    waiting: tuple[Waiting, ...] | None = None


class LaneWait(Value):
    """One wait in a deadlock: a lane waits for an event that another lane records."""

    lane: str
    on: str
    step: int


class LanesWait(Value):
    """Deadlock: each lane (stream) waits for another; the host waits for lane `host`."""

    kind: Literal["lanes_wait"] = "lanes_wait"
    host: str | None = None
    lanes: tuple[LaneWait, ...] = ()


class Stuck(Value):
    """Verdict: the engine stopped making progress.

    `missing_order` are two unordered accesses, if the race detector found some; `made_at` are source locations of the
    engine that may be wrong, if its target names some.
    """

    kind: Literal["stuck"] = "stuck"
    stats: Stats
    waits: NotDrained | LanesWait = Field(discriminator="kind")
    missing_order: MissingOrder | None = None
    made_at: tuple[Site, ...] = ()
    known: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unconfirmed: Fact | None = None


class Vacuous(Value):
    """Verdict: no difference, but a situation that `expect` names did not occur.

    `missing` has each expected and actual fact.
    """

    kind: Literal["vacuous"] = "vacuous"
    stats: Stats
    missing: tuple[Fact, ...]

    def reached(self, fault: str) -> bool:
        """Return whether the code of a planted fault was executed."""
        ruled_out = {each.values["fault"] for each in self.missing if each.kind == "fault_requires"}
        return fault not in ruled_out and fact("fault_not_reached", fault=fault) not in self.missing


class Lost(Value):
    """The trace could not be judged, for a reason outside it, e.g. a dead worker process."""

    kind: Literal["lost"] = "lost"
    reason: str


Kind: TypeAlias = Literal["agreed", "diverged", "crashed", "stuck", "vacuous", "lost"]
Verdict: TypeAlias = Annotated[Agreed | Diverged | Crashed | Stuck | Vacuous | Lost, Field(discriminator="kind")]


def is_finding(verdict: Verdict) -> bool:
    """Return whether a verdict reports a bug: diverged, crashed or stuck."""
    return isinstance(verdict, Diverged | Crashed | Stuck)


def plane(verdict: Verdict) -> str:
    """Return the category of the first wrong state (its plane), e.g. `tokens` or `kv`."""
    match verdict:
        case Diverged(difference=difference):
            return difference.plane
        case Stuck():
            return "liveness"
        case Crashed():
            return CRASH
        case Agreed() | Vacuous() | Lost():
            raise ValueError(f"{verdict.kind} is not a finding")


def known_causes(verdict: Verdict) -> tuple[str, ...]:
    """Return the names of the known bugs that cause a finding; empty if none do."""
    return verdict.known if isinstance(verdict, Diverged | Crashed | Stuck) else ()


def with_known_causes(verdict: Verdict, known: tuple[str, ...]) -> Verdict:
    """Return a finding with the names of the known bugs that cause it."""
    return verdict.model_copy(update={"known": known}) if known else verdict


def required_fixes(verdict: Verdict) -> tuple[str, ...]:
    """Return the known bugs whose fixes a finding needs in order to reproduce."""
    return verdict.needs if isinstance(verdict, Diverged | Crashed | Stuck) else ()


def with_required_fixes(verdict: Verdict, needs: tuple[str, ...]) -> Verdict:
    """Return a finding with the known bugs whose fixes it needs in order to reproduce."""
    return verdict.model_copy(update={"needs": needs}) if needs else verdict


def unconfirmed_reason(verdict: Verdict) -> Fact | None:
    """Return why a finding has no confirmation by a slower run; None if it needs none."""
    return verdict.unconfirmed if isinstance(verdict, Diverged | Crashed | Stuck) else None


def detected_race(verdict: Verdict) -> MissingOrder | None:
    """Return the race (two unordered accesses) of a finding; None without one."""
    match verdict:
        case Diverged(difference=difference):
            return difference.missing_order
        case Crashed(missing_order=order) | Stuck(missing_order=order):
            return order
        case _:
            return None


def with_detected_race(verdict: Verdict, order: MissingOrder | None) -> Verdict:
    """Return a finding with a race added, unless it already has one.

    Other verdicts unchanged.
    """
    if order is None or detected_race(verdict) is not None:
        return verdict
    match verdict:
        case Diverged(difference=difference):
            return verdict.model_copy(update={"difference": difference.model_copy(update={"missing_order": order})})
        case Crashed() | Stuck():
            return verdict.model_copy(update={"missing_order": order})
        case _:
            return verdict


# A larger share of ambiguous decisions would leave too much unchecked: at most one in this many.
DECISIONS_PER_AMBIGUOUS = 1000


def is_too_ambiguous(stats: Iterable[Stats]) -> bool:
    """Return whether rounding could change too many of the sampled tokens.

    Other tokens may have been correct instead of an ambiguous one.
    """
    probes = [each.probes for each in stats]
    ambiguous = sum(each.get("ambiguous_decision", 0) for each in probes)
    return ambiguous * DECISIONS_PER_AMBIGUOUS > sum(each.get("random_decision", 0) for each in probes)


class Outcome(Value):
    """How a run of a finding's trace ended under one schedule."""

    schedule: Schedule
    kind: Kind
    variable: str = ""
    commit: str = ""
    step: int = -1

    @classmethod
    def of(cls, schedule: Schedule, verdict: Verdict) -> "Outcome":
        """Build the outcome from a run's schedule and verdict."""
        if not isinstance(verdict, Diverged):
            return cls(schedule=schedule, kind=verdict.kind)
        found = verdict.difference
        return cls(schedule=schedule, kind=verdict.kind, variable=found.variable, commit=found.commit, step=found.step)

    @property
    def agrees(self) -> bool:
        """Whether the run had no finding under this schedule."""
        return self.kind in ("agreed", "vacuous")


def decisive_lane_pairs(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Return lane pairs: the finding reproduces if and only if the first one runs first.

    Empty if there are none.

    A finding reproduces exactly in those lane orders where the first lane of a pair precedes the second.
    """
    orders = [(each.schedule.order, each.agrees) for each in outcomes if each.schedule.policy == "lane_order"]
    if len({agrees for _, agrees in orders}) < 2:
        return []
    return [
        (first, second)
        for first, second in permutations(sorted(orders[0][0]), 2)
        if all((order.index(first) < order.index(second)) is not agrees for order, agrees in orders)
    ]


class Judgement(Value):
    """Result of judging one trace.

    `trace` is explicit and replays to `verdict`. `schedules` counts the schedules that ran; `outcomes` is empty unless
    there is a finding: eager, lazy and 24 lane orders, each run again. `ran` are edited functions of an engine's
    sources that have run and were not reported before; it depends on earlier traces.
    """

    verdict: Verdict
    trace: Trace
    schedules: Count
    outcomes: tuple[Outcome, ...] = ()
    ran: tuple[str, ...] = ()
