"""A finding to be exported: its trace and its verdict; and how far it can be shown on a plain CPU."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from scenarios.trace import Trace
from workers.record.evidence import RACES, Difference
from workers.record.verdict import Crashed, Diverged, Stuck, Verdict, missing_order_of
from workers.targets.vllm.runner_name import RunnerName

Level: TypeAlias = Literal["scheduler", "engine"]
# Folders of vLLM's sources whose errors are the scheduler's own.
_SCHEDULER_FILES = ("scheduler.py", "async_scheduler.py", "kv_cache_manager.py", "block_pool.py")


class ExportError(ValueError):
    """A finding that no test on a plain CPU shows; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding by name and title: an explicit trace, and its verdict on a version of vLLM with one of its runners.

    `source` is the file of the trace.
    """

    name: str
    title: str
    source: str
    trace: Trace
    verdict: Verdict
    version: str
    runner: RunnerName = "v1"

    @property
    def difference(self) -> Difference | None:
        """What differs, of a run that came to an end."""
        return self.verdict.difference if isinstance(self.verdict, Diverged) else None

    @property
    def stem(self) -> str:
        """The name of the test."""
        name = self.name.removeprefix("vllm_")
        return "".join(each if each.isalnum() else "_" for each in name).strip("_").lower() or "finding"


def level_of(finding: Finding) -> Level:
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
    if finding.runner == "v2":
        raise ExportError("it is of vLLM's second model runner, which runs on no CPU")
    return "engine"
