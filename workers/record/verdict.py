"""Verdicts of runs, as values: they are returned, stored as JSON and compared, never raised."""

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from scenarios.spec import Value
from scenarios.trace import Trace


class Stats(Value):
    """What one run did.

    `commits` counts processed results of requests, `captures` device and host observations compared,
    `run_ahead_max` whole steps launched and not begun on the device when another was scheduled,
    `digest` is a hash of every device capture in order, `probes` how often each interesting thing happened, `planes`
    those in which something was compared.
    """

    requests: int
    steps: int
    commits: int
    captures: int
    run_ahead_max: int
    digest: str
    probes: dict[str, int]
    planes: tuple[str, ...] = ()


NO_STATS = Stats(requests=0, steps=0, commits=0, captures=0, run_ahead_max=0, digest="", probes={})


class Difference(Value):
    """The first place where engine and oracle part.

    `commit` is request/incarnation/epoch/step; `position` a token position or a column, where the variable has one;
    `writers` are the last device ops or host points that wrote the value, newest first, as lane:op@step;
    `missing_order` names two unordered accesses, where the race detector saw some.
    """

    plane: str
    variable: str
    request: str
    commit: str
    step: int
    position: int | None
    expected: str
    actual: str
    writers: tuple[str, ...] = ()
    missing_order: str | None = None


class Agreed(Value):
    """Engine and oracle agree everywhere, and everything that was expected happened."""

    kind: Literal["agreed"] = "agreed"
    stats: Stats


class Diverged(Value):
    """Engine and oracle part."""

    kind: Literal["diverged"] = "diverged"
    stats: Stats
    difference: Difference


class Crashed(Value):
    """The engine raised an exception, on the host or in a device op.

    `missing_order` names two unordered accesses before, where the race detector saw some.
    """

    kind: Literal["crashed"] = "crashed"
    stats: Stats
    error: str
    where: str
    missing_order: str | None = None


class Stuck(Value):
    """The engine stopped making progress; `reason` says what each waiting request or lane waits for."""

    kind: Literal["stuck"] = "stuck"
    stats: Stats
    reason: str


class Vacuous(Value):
    """Nothing is wrong, but something that had to happen did not; each of `missing` says what, wanted and seen."""

    kind: Literal["vacuous"] = "vacuous"
    stats: Stats
    missing: tuple[str, ...]


class Lost(Value):
    """No verdict was reached, for a reason outside the trace."""

    kind: Literal["lost"] = "lost"
    reason: str


Verdict: TypeAlias = Annotated[Agreed | Diverged | Crashed | Stuck | Vacuous | Lost, Field(discriminator="kind")]


def is_finding(verdict: Verdict) -> bool:
    """Whether a verdict says that the engine is wrong."""
    return isinstance(verdict, Diverged | Crashed | Stuck)


def plane(verdict: Verdict) -> str:
    """Return the kind of state a finding is about."""
    match verdict:
        case Diverged(difference=difference):
            return difference.plane
        case Stuck():
            return "liveness"
        case Crashed():
            return "crash"
        case Agreed() | Vacuous() | Lost():
            raise ValueError(f"{verdict.kind} is not a finding")


# More ambiguous decisions than one in so many would leave too much unseen.
DECISIONS_PER_AMBIGUOUS = 1000


def is_too_ambiguous(stats: Iterable[Stats]) -> bool:
    """Tell whether too many of the tokens that were drawn were drawn so narrowly that others may have been right."""
    probes = [each.probes for each in stats]
    ambiguous = sum(each.get("ambiguous_decision", 0) for each in probes)
    return ambiguous * DECISIONS_PER_AMBIGUOUS > sum(each.get("random_decision", 0) for each in probes)


class Outcome(Value):
    """How one schedule of a trace ended: `schedule` is a short name, `result` a verdict kind and its first variable."""

    schedule: str
    agrees: bool
    result: str


class Judgement(Value):
    """What a worker found out about one trace.

    `trace` is explicit and replays to `verdict` alone. `schedules` counts the schedules run;
    `outcomes` is empty unless there is a finding: eager, lazy and 24 lane orders, each re-run.
    """

    verdict: Verdict
    trace: Trace
    schedules: int
    outcomes: tuple[Outcome, ...] = ()
