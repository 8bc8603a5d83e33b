"""Digests of what tasks read and wrote, and the first task that differs between two runs of a program.

Two runs under different schedules launch the same tasks; a race is harmful where what they read or write differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workers.targets.simulated_torch.native import NativeDigests
from workers.targets.simulated_torch.reports import SourceLine, source_lines


@dataclass(frozen=True, slots=True)
class TaskDigests:
    """Hashes of the bytes that one task read, before it ran, and wrote, after it ran."""

    op: str
    step: int
    nth: int
    stream: str
    lines: tuple[SourceLine, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def label(self) -> tuple[str, int, int, str]:
        """Identity of the task, whatever it computed."""
        return self.op, self.step, self.nth, self.stream


@dataclass(frozen=True, slots=True)
class Difference:
    """The first task that differs between two runs: what differs, and where it was launched."""

    index: int
    task: TaskDigests
    what: Literal["reads", "writes", "other_task", "only_one"]

    def __str__(self) -> str:
        where = f" ({self.task.lines[0]})" if self.task.lines else ""
        return f"task {self.index}, {self.task.stream}:{self.task.op}@{self.task.step}{where}: {self.what}"


def task_digests(native: Sequence[NativeDigests], root: Path) -> tuple[TaskDigests, ...]:
    """Return digests as the native library gives them, with relative paths."""
    return tuple(
        TaskDigests(op, step, nth, stream, source_lines(lines, root), tuple(reads), tuple(writes))
        for op, step, nth, stream, lines, reads, writes in native
    )


def first_difference(expected: Sequence[TaskDigests], actual: Sequence[TaskDigests]) -> Difference | None:
    """Return the first task that differs between two runs of one program, or None."""
    for index, (wanted, found) in enumerate(zip(expected, actual, strict=False)):
        if wanted.label != found.label:
            return Difference(index, found, "other_task")
        if wanted.reads != found.reads:
            return Difference(index, found, "reads")
        if wanted.writes != found.writes:
            return Difference(index, found, "writes")
    if len(expected) == len(actual):
        return None
    index = min(len(expected), len(actual))
    longer = actual if len(actual) > len(expected) else expected
    return Difference(index, longer[index], "only_one")
