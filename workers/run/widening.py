"""Reproduce simulated races on a GPU, by a delay before the first access of each race.

A race names two accesses without an order. On the GPU, the stream of the first access spins before it, so that the
second access comes first unless something orders them. Then the run is judged as usual. Bugs that also appear without
the delay are no harm of the race.

Does not verify: that a race without observed harm is harmless.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Literal, TypeAlias

from scenarios.events import Delay, Schedule
from scenarios.spec import Value
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import HOST, MissingOrder
from workers.record.verdict import Verdict
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.run.references import References
from workers.shrink.fingerprint import signature_of
from workers.targets.child.target import ChildKind
from workers.targets.registry import target_kind
from workers.targets.target import DeviceError, RunConfig

# Longer than a step of the small models that traces run.
WIDENED_MICROSECONDS = 60_000
# Number of source locations (of the access and its callers) that distinguish the copies of different buffers.
_PLACES_MAX = 3
# Prefix of the names of a rank's memory, such as its block table.
_RANK = "rank "
# Our own sources, which replace sources of the engine on the simulated device.
_OWN = "workers/"

# Without a delay, with a host wait after each launch, delayed in the step of the race, delayed in every step.
Way: TypeAlias = Literal["plain", "joined", "in_its_step", "in_every_step"]
_WITHOUT_DELAY: tuple[Way, ...] = ("plain", "joined")


class Tries(Value):
    """Runs of a trace on a GPU with one kind of delay: number, and number with a new finding."""

    way: Way
    runs: int
    harmed: int
    verdict: Verdict | None = None


class DelayedRuns(Value):
    """Result for one source location of races: the delay before it, and the delayed runs.

    `num_races` counts the races whose first access is at this location: one delay widens the windows of all of them.
    """

    order: MissingOrder
    num_races: int
    delay: Delay | None
    tries: tuple[Tries, ...]

    @property
    def does_harm(self) -> bool:
        """Return whether a delayed run has a finding that no undelayed run has."""
        return any(each.harmed for each in self.tries if each.way not in _WITHOUT_DELAY)


def races_of(trace: Trace, config: RunConfig) -> Sequence[MissingOrder]:
    """Return the races that the simulated device reports under the eager schedule.

    Raises:
        DeviceError: the engine cannot run there, or it has no race detection there.
    """
    kind = _kind(config)
    kind.prepare(config)
    run = Run(trace.model_copy(update={"schedule": Schedule()}), ModelValueCache(), Options(judged=False), kind, config)
    try:
        run.to_end()
        return run.target.races()
    finally:
        run.target.close()


def _kind(config: RunConfig) -> ChildKind:
    kind = target_kind(config.engine)
    if not isinstance(kind, ChildKind) or not kind.capabilities.finds_races:
        raise DeviceError(f"engine {kind.name}: --confirm cuda needs an engine that also runs unmodified on a GPU")
    return kind


def delay_of(order: MissingOrder, stand_ins: Sequence[str] = ()) -> Delay | None:
    """Return a delay before a race's first access; None if its source location is unknown.

    With several ranks only the rank of the race is delayed.

    `stand_ins` are prefixes of files that only the simulated device runs, instead of the engine's own.
    """
    first, passed_over = order.first, (_OWN, *stand_ins)
    places = [site for site in (first.site, *first.callers) if site is not None and site.line]
    at = tuple(f"{site.file}:{site.line}" for site in places if not site.file.startswith(passed_over))[:_PLACES_MAX]
    if not at:
        return None
    of: Literal["host", "stream"] = "host" if first.lane == HOST else "stream"
    number = order.memory.partition(":")[0].removeprefix(_RANK)
    rank = int(number) if order.memory.startswith(_RANK) and number.isdecimal() else None
    return Delay(at=at, step=first.step, microseconds=WIDENED_MICROSECONDS, of=of, rank=rank)


def delay_source_lines(trace: Trace, simulated: RunConfig, gpu: RunConfig, times: int) -> Iterator[DelayedRuns]:
    """Delay the first access of each simulated race on a GPU; yield the result per source line.

    The trace runs `times` in each way.

    Raises:
        DeviceError: one of the devices is not available.
        Unconfirmed: a finding does not reproduce, so it is no bug of the engine.
    """
    races = races_of(trace, simulated)
    value_cache, compared = ModelValueCache(), References()

    def runs(schedule: Schedule, count: int) -> list[Verdict]:
        scheduled, options = (
            trace.model_copy(update={"schedule": schedule}),
            Options(compared=compared, confirm="never"),
        )
        return [check(scheduled, value_cache, options, config=gpu) for _ in range(count)]

    plain, joined = runs(Schedule(), times), runs(Schedule(joined=True), 1)
    shown = {_bug_of(each, trace) for each in (*plain, *joined)}
    without = _tries("plain", plain, trace, set()), _tries("joined", joined, trace, set())
    for order, delay, num_races in _by_location(races, _kind(simulated).stand_ins):
        tries = [*without]
        for way, delayed in _delays(delay):
            tries.append(_tries(way, runs(Schedule(delays=(delayed,)), times), trace, shown))
            if tries[-1].harmed:
                break
        yield DelayedRuns(order=order, num_races=num_races, delay=delay, tries=tuple(tries))


def _by_location(
    races: Iterable[MissingOrder], stand_ins: Sequence[str]
) -> Iterator[tuple[MissingOrder, Delay | None, int]]:
    """Group races by the source location to delay; yield (first race, delay, number of races)."""
    of_place: dict[object, list[tuple[MissingOrder, Delay | None]]] = {}
    for number, order in enumerate(races):
        delay = delay_of(order, stand_ins)
        place = (delay.at, delay.of, delay.rank) if delay is not None else number
        of_place.setdefault(place, []).append((order, delay))
    for each in of_place.values():
        yield *each[0], len(each)


def _delays(delay: Delay | None) -> Iterator[tuple[Way, Delay]]:
    """Yield the delays to try: only in the step of the race, then in every step."""
    if delay is not None:
        yield "in_its_step", delay
        yield "in_every_step", delay.model_copy(update={"step": None})


def _tries(way: Way, verdicts: Sequence[Verdict], trace: Trace, shown: Set[str]) -> Tries:
    """Count the delayed runs, and those with a finding that undelayed runs (`shown`) lack."""
    harmful = [each for each in verdicts if _bug_of(each, trace) not in {"", *shown}]
    return Tries(way=way, runs=len(verdicts), harmed=len(harmful), verdict=harmful[0] if harmful else None)


def _bug_of(verdict: Verdict, trace: Trace) -> str:
    """Return the fingerprint of a finding as text, "" for other verdicts."""
    signature = signature_of(verdict, trace)
    return signature.bug if signature is not None else ""
