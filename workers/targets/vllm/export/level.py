"""How far a finding can be shown on a plain CPU."""

from pathlib import Path
from typing import Literal, TypeAlias

from workers.record.evidence import RACES, Difference
from workers.record.verdict import Crashed, Diverged, Stuck, missing_order_of
from workers.targets.child.export.text import identifier
from workers.targets.exported import ExportError, Finding

# Plane and variable of a request that a paused engine plans.
PAUSED = ("control", "paused")
Level: TypeAlias = Literal["scheduler", "engine"]
# Files of vLLM's sources whose errors are the scheduler's own.
_SCHEDULER_FILES = ("scheduler.py", "async_scheduler.py", "kv_cache_manager.py", "block_pool.py")


def stem_of(name: str) -> str:
    """Return the name of a finding's test."""
    return identifier(name, "vllm_")


def level_of(finding: Finding, runs_on_cpu: bool) -> Level:
    """Return what a test of a finding has to build: a scheduler where that alone is wrong, otherwise an engine.

    Raises:
        ExportError: it needs a device whose work lies behind the host's.
    """
    order = missing_order_of(finding.verdict)
    difference = finding.difference
    if order is not None or (difference is not None and difference.plane == RACES):
        raise ExportError("it is a race between host and device, and a CPU has no device that comes later")
    if finding.trace.schedule.policy != "eager":
        raise ExportError("its schedule has the device come later than the host, and a CPU has no device")
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
        raise ExportError("it is of vLLM's second model runner, which runs on no CPU")
    return "engine"
