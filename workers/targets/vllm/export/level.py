"""Level of an exported test: a scheduler alone, or a whole engine on a CPU."""

from pathlib import Path
from typing import Literal, TypeAlias

from workers.record.evidence import RACES, Difference
from workers.record.verdict import Crashed, Diverged, Stuck, detected_race
from workers.targets.child.export.text import identifier
from workers.targets.exported import ExportError, Finding

# Plane and variable of the finding that a paused engine schedules a request.
PAUSED = ("control", "paused")
Level: TypeAlias = Literal["scheduler", "engine"]
# Source files of vLLM whose exceptions a scheduler alone can raise.
_SCHEDULER_FILES = ("scheduler.py", "async_scheduler.py", "kv_cache_manager.py", "block_pool.py")


def stem_of(name: str) -> str:
    """Return the name of a finding's exported test, without the prefix `test_`."""
    return identifier(name, "vllm_")


def level_of(finding: Finding, runs_on_cpu: bool) -> Level:
    """Return what the exported test runs: a scheduler alone, or a whole engine.

    Raises:
        ExportError: the finding needs a device that runs asynchronously to the host.
    """
    order = detected_race(finding.verdict)
    difference = finding.difference
    if order is not None or (difference is not None and difference.plane == RACES):
        raise ExportError("it is a race between host and device, and a CPU has no asynchronous device")
    if finding.trace.schedule.policy != "eager":
        raise ExportError("its schedule delays the device, and a CPU has no device")
    match finding.verdict:
        case Crashed(where=where) if Path(where.file).name in _SCHEDULER_FILES:
            return "scheduler"
        case Stuck():
            return "scheduler"
        case Diverged(difference=Difference(plane="books")):
            return "scheduler"
        case Diverged(difference=Difference(plane=plane, variable=variable)) if (plane, variable) == PAUSED:
            return "scheduler"
    if not runs_on_cpu:
        raise ExportError("it needs vLLM's second model runner, which does not run on a CPU")
    return "engine"
