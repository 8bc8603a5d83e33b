"""Recorded run: replay one trace, and keep what its lanes did and which order was missing."""

import re
from collections.abc import Iterable

from scenarios.trace import Trace
from workers.judge.races import Race, RaceDetector
from workers.lanes.timeline import HOST, MissingOrder, Task, Timeline, TimelineRecorder
from workers.oracle.tape import Tapes
from workers.record.verdict import Verdict
from workers.run.check import Options, check
from workers.targets.registry import kind_of
from workers.targets.target import DEFAULT_CONFIG, RunConfig

_ACCESS = re.compile(r"the (read|write)(?: over step -?\d+)? by (\w+):([\w ]+)@(-?\d+)")


def has_timeline(config: RunConfig) -> bool:
    """Whether what lanes do can be recorded: on simulated lanes alone."""
    return config.device != "cuda" and bool(kind_of(config.engine).capabilities.lanes)


def record_timeline(trace: Trace, config: RunConfig = DEFAULT_CONFIG) -> tuple[Verdict, Timeline]:
    """Run an explicit trace under its own schedule; return the verdict and the timeline.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    assert has_timeline(config), "there are no simulated lanes"
    made: list[tuple[RaceDetector, TimelineRecorder]] = []

    def observe(detector: RaceDetector) -> TimelineRecorder:
        made.append((detector, TimelineRecorder(detector)))
        return made[-1][1]

    verdict = check(trace, Tapes(), Options(observe=observe), config=config)
    lanes = kind_of(config.engine).capabilities.lanes
    if not made:
        return verdict, Timeline(("host", *lanes), (), ())
    detector, recorder = made[0]
    missing = missing_order(detector.race, recorder.tasks, ("host", *lanes)) if detector.race is not None else None
    return verdict, recorder.timeline(lanes, missing)


def missing_order(race: Race, tasks: list[Task], lanes: tuple[str, ...]) -> MissingOrder | None:
    """Return the two tasks of a race: the first that is the second access, and the last before it that is the first."""
    second = _matching(race.second, race.buffer, tasks, lanes)
    if second is None:
        return None
    first = _matching(race.first, race.buffer, reversed(tasks[: second.index]), lanes)
    return MissingOrder(first.index, second.index, str(race)) if first is not None else None


def _matching(access: str, buffer: str, tasks: Iterable[Task], lanes: tuple[str, ...]) -> Task | None:
    """Return the first of some tasks that an access of a race is."""
    found = _ACCESS.fullmatch(access)
    assert found is not None, f"an access is called {access}"
    how, lane, op, step = found[1], lanes.index(found[2]), found[3], int(found[4])
    for task in tasks:
        used = task.reads if how == "read" else task.writes
        is_it = (task.lane, task.step) == (lane, step) and (lane == HOST or task.op == op)
        if is_it and buffer in {name.partition(":")[0] for name in used}:
            return task
    return None
