"""Races of the simulated device on a GPU: the window of each is widened there, and what comes of it is judged.

A race says which access nothing orders before another. On a GPU its stream spins in front of the former, so that the
latter comes first if nothing keeps it; then the run is judged as any. What shows without the delay is no harm of it.
Does not verify: that a race without harm seen does none.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal, TypeAlias

from scenarios.events import Delay, Schedule
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.oracle.tape import Tapes
from workers.record.evidence import HOST, MissingOrder
from workers.record.verdict import Verdict
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.run.references import References
from workers.shrink.fingerprint import signature_of
from workers.targets.child.target import ChildKind
from workers.targets.registry import kind_of
from workers.targets.target import DeviceError, RunConfig

# Longer than a step of the small models that traces run.
WIDENED_MICROSECONDS = 60_000
# A place and so many of its callers tell one buffer's copy from another's.
_PLACES_MAX = 3
# Of this project, in the place of what the engine runs on a GPU.
_OWN = "workers/"

# As the trace is, with each launch waited for, delayed in the step of the race, and in every step.
Way: TypeAlias = Literal["plain", "joined", "in_its_step", "in_every_step"]
_WITHOUT_DELAY: tuple[Way, ...] = ("plain", "joined")


class Tries(Value):
    """Runs of a trace on a GPU in one way: how many, how many of them show harm, and the first verdict that does."""

    way: Way
    runs: int
    harmed: int
    verdict: Verdict | None = None


class Widened(Value):
    """What comes on a GPU of the races of one place: the first, what was held up, and the runs.

    `num_races` counts them: a delay of their first accesses' place widens all of their windows.
    """

    order: MissingOrder
    num_races: int
    delay: Delay | None
    tries: tuple[Tries, ...]

    @property
    def does_harm(self) -> bool:
        """Whether a run with its window widened shows what none without does."""
        return any(each.harmed for each in self.tries if each.way not in _WITHOUT_DELAY)


def races_of(trace: Trace, config: RunConfig) -> Sequence[MissingOrder]:
    """Return the races of a trace on the simulated device under eager.

    Raises:
        DeviceError: the engine cannot run there, or it watches no accesses there.
    """
    kind = _kind(config)
    kind.prepare(config)
    run = Run(trace.model_copy(update={"schedule": Schedule()}), Tapes(), Options(judged=False), kind, config)
    try:
        run.to_end()
        return run.target.races()
    finally:
        run.target.close()


def _kind(config: RunConfig) -> ChildKind:
    kind = kind_of(config.engine)
    if not isinstance(kind, ChildKind) or not kind.capabilities.finds_races:
        raise DeviceError(f"engine {kind.name}: --confirm cuda needs an engine that also runs unmodified on a GPU")
    return kind


def delay_of(order: MissingOrder, stand_ins: Sequence[str] = ()) -> Delay | None:
    """Return the delay that widens the window of a race; None where its first access has no place in the program.

    Files whose names begin as one of the `stand_ins` run in the place of what a GPU runs.
    """
    first, passed_over = order.first, (_OWN, *stand_ins)
    places = [site for site in (first.site, *first.callers) if site is not None and site.line]
    at = tuple(f"{site.file}:{site.line}" for site in places if not site.file.startswith(passed_over))[:_PLACES_MAX]
    if not at:
        return None
    of: Literal["host", "stream"] = "host" if first.lane == HOST else "stream"
    return Delay(at=at, step=first.step, microseconds=WIDENED_MICROSECONDS, of=of)


def widened(trace: Trace, simulated: RunConfig, gpu: RunConfig, times: int) -> Iterator[Widened]:
    """Yield for each place of races of an explicit trace on the simulated device what comes of it on a GPU.

    A trace runs `times` in each way.

    Raises:
        DeviceError: one of the devices is not there.
        Unconfirmed: a finding is none of the engine's.
    """
    races = races_of(trace, simulated)
    tapes, compared = Tapes(), References()

    def runs(schedule: Schedule, count: int) -> list[Verdict]:
        scheduled, options = (
            trace.model_copy(update={"schedule": schedule}),
            Options(compared=compared, confirm="never"),
        )
        return [check(scheduled, tapes, options, config=gpu) for _ in range(count)]

    plain, joined = runs(Schedule(), times), runs(Schedule(joined=True), 1)
    shown = {_bug_of(each, trace) for each in (*plain, *joined)}
    without = _tries("plain", plain, trace, set()), _tries("joined", joined, trace, set())
    for order, delay, num_races in _places(races, _kind(simulated).stand_ins):
        tries = [*without]
        for way, late in _late(delay):
            tries.append(_tries(way, runs(Schedule(delays=(late,)), times), trace, shown))
            if tries[-1].harmed:
                break
        yield Widened(order=order, num_races=num_races, delay=delay, tries=tuple(tries))


def _places(
    races: Iterable[MissingOrder], stand_ins: Sequence[str]
) -> Iterator[tuple[MissingOrder, Delay | None, int]]:
    """Yield for each place that is delayed its first race, the delay, and how many races have it."""
    of_place: dict[object, list[tuple[MissingOrder, Delay | None]]] = {}
    for number, order in enumerate(races):
        delay = delay_of(order, stand_ins)
        place = (delay.at, delay.of) if delay is not None else number
        of_place.setdefault(place, []).append((order, delay))
    for each in of_place.values():
        yield *each[0], len(each)


def _late(delay: Delay | None) -> Iterator[tuple[Way, Delay]]:
    """Yield the ways to delay a race's first access: in its step, and then in all of them."""
    if delay is not None:
        yield "in_its_step", delay
        yield "in_every_step", delay.model_copy(update={"step": None})


def _tries(way: Way, verdicts: Sequence[Verdict], trace: Trace, shown: Set[str]) -> Tries:
    """Return what some runs show beside the bugs that are `shown` without a delay."""
    harmful = [each for each in verdicts if _bug_of(each, trace) not in {"", *shown}]
    return Tries(way=way, runs=len(verdicts), harmed=len(harmful), verdict=harmful[0] if harmful else None)


def _bug_of(verdict: Verdict, trace: Trace) -> str:
    """Return the bug that a verdict is of, an empty text if it is no finding."""
    signature = signature_of(verdict, trace)
    return signature.bug if signature is not None else ""
