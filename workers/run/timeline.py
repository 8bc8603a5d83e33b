"""Timeline of a trace: rerun it and record when each task of the simulated streams runs."""

from collections.abc import Iterable

from scenarios.trace import Trace
from workers.judge.races import RaceDetector
from workers.lanes.timeline import HOST as HOST_LANE
from workers.lanes.timeline import Task, Timeline, TimelineRecorder, UnorderedTasks
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import HOST, Access, MissingOrder
from workers.record.verdict import Verdict
from workers.run.check import check
from workers.run.engine_run import Options
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, RunConfig


def has_timeline(config: RunConfig) -> bool:
    """Return whether a timeline can be recorded (only with simulated streams)."""
    return config.device != "cuda" and bool(target_kind(config.engine).capabilities.lanes)


def record_timeline(trace: Trace, config: RunConfig = DEFAULT_CONFIG) -> tuple[Verdict, Timeline]:
    """Run a trace under its own schedule; return the verdict and the timeline.

    Raises:
        DeviceError: the trace cannot run on that device.
    """
    assert has_timeline(config), "there are no simulated lanes"
    made: list[tuple[RaceDetector, TimelineRecorder]] = []

    def observe(detector: RaceDetector) -> TimelineRecorder:
        made.append((detector, TimelineRecorder(detector)))
        return made[-1][1]

    verdict = check(trace, ModelValueCache(), Options(observe=observe), config=config)
    lanes = target_kind(config.engine).capabilities.lanes
    if not made:
        return verdict, Timeline((HOST, *lanes), (), ())
    detector, recorder = made[0]
    tasks = unordered_tasks(detector.race, recorder.tasks, (HOST, *lanes)) if detector.race is not None else None
    return verdict, recorder.timeline(lanes, tasks)


def unordered_tasks(race: MissingOrder, tasks: list[Task], lanes: tuple[str, ...]) -> UnorderedTasks | None:
    """Return the timeline's tasks for both accesses of a race; None if one is not found.

    They are the first task that makes the second access, and the last one before it that makes the first access.
    """
    second = _matching(race.second, race.memory, tasks, lanes)
    if second is None:
        return None
    first = _matching(race.first, race.memory, reversed(tasks[: second.index]), lanes)
    return UnorderedTasks(first.index, second.index) if first is not None else None


def _matching(access: Access, buffer: str, tasks: Iterable[Task], lanes: tuple[str, ...]) -> Task | None:
    """Return the first task that made an access to a buffer, or None."""
    lane = lanes.index(access.lane)
    for task in tasks:
        used = task.reads if access.how == "read" else task.writes
        # All accesses of the host have the same op name, its tasks have different ones.
        is_it = (task.lane, task.step) == (lane, access.step) and (lane == HOST_LANE or task.op == access.op)
        if is_it and any(use.buffer == buffer for use in used):
            return task
    return None
