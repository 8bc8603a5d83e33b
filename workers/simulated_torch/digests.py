"""Hashes of the memory that tasks read and wrote; they show whether a race is harmful.

Two runs of one program under different schedules launch the same tasks. The runs under eager and lazy are compared task
by task. A race is benign if its two tasks read and wrote the same bytes in both runs, masked if they did not but every
copy to the host did, and harmful otherwise. If neither task of the race reads, the host may, so the whole runs are
compared.

Does not verify: other schedules; what the host reads without a copy, and whether it uses the bytes that it receives;
whether another race in the same runs caused the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workers.simulated_torch.native import NativeDigests
from workers.simulated_torch.reports import Access, Race, SourceLine, source_lines

_HOST, _TO_HOST = "host", "copy_d2h"


@dataclass(frozen=True, slots=True)
class TaskDigests:
    """Hashes of the bytes that one task reads and writes."""

    op: str
    step: int
    nth: int
    stream: str
    lines: tuple[SourceLine, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def label(self) -> tuple[str, int, int, str]:
        """Op, step, count and stream, which identify the same task in another run."""
        return self.op, self.step, self.nth, self.stream


@dataclass(frozen=True, slots=True)
class Difference:
    """First task that differs between two runs, and how it differs."""

    index: int
    task: TaskDigests
    what: Literal["reads", "writes", "other_task", "only_one"]

    def __str__(self) -> str:
        where = f" ({self.task.lines[0]})" if self.task.lines else ""
        return f"task {self.index}, {self.task.stream}:{self.task.op}@{self.task.step}{where}: {self.what}"


def task_digests(native: Sequence[NativeDigests], root: Path) -> tuple[TaskDigests, ...]:
    """Return the native library's digests as `TaskDigests`, with file paths relative to `root`."""
    return tuple(
        TaskDigests(op, step, nth, stream, source_lines(lines, root), tuple(reads), tuple(writes))
        for op, step, nth, stream, lines, reads, writes in native
    )


def first_difference(expected: Sequence[TaskDigests], actual: Sequence[TaskDigests]) -> Difference | None:
    """Return the first task with other bytes or another label in the second run, or None."""
    for index, (reference, found) in enumerate(zip(expected, actual, strict=False)):
        if reference.label != found.label:
            return Difference(index, found, "other_task")
        if reference.reads != found.reads:
            return Difference(index, found, "reads")
        if reference.writes != found.writes:
            return Difference(index, found, "writes")
    if len(expected) == len(actual):
        return None
    index = min(len(expected), len(actual))
    longer = actual if len(actual) > len(expected) else expected
    return Difference(index, longer[index], "only_one")


@dataclass(frozen=True, slots=True)
class RaceHarm:
    """Whether a race changes what the host receives (harmful), only tasks (masked), or nothing.

    `given` is the first task that passes different bytes to the host.
    """

    kind: Literal["benign", "masked", "harmful"]
    first: Difference | None = None
    given: TaskDigests | None = None


def harm_of(race: Race, eager: Sequence[TaskDigests], lazy: Sequence[TaskDigests]) -> RaceHarm:
    """Compare the hashes of an eager and a lazy run; return whether a race is harmful."""
    sides = [side for side in (race.first, race.second) if side.actor != _HOST]
    found = first_difference(_tasks_of(sides, eager), _tasks_of(sides, lazy))
    if found is None and all(side.write for side in sides):
        found = first_difference(eager, lazy)
    if found is None:
        return RaceHarm("benign")
    given = first_difference(_host_copies(eager, found.task), _host_copies(lazy, found.task))
    return RaceHarm("masked", found) if given is None else RaceHarm("harmful", found, given.task)


def _tasks_of(sides: Sequence[Access], run: Sequence[TaskDigests]) -> list[TaskDigests]:
    """Return the tasks that made a race's accesses: equal op, step and source line."""
    labels = {(side.op, side.step, side.lines[:1]) for side in sides}
    return [task for task in run if (task.op, task.step, task.lines[:1]) in labels]


def _host_copies(run: Sequence[TaskDigests], task: TaskDigests) -> Sequence[TaskDigests]:
    """Return `task`'s and all later device-to-host copies; if there are none, the run's last task.

    These are the copies to the host or, without any, the last task of the run.
    """
    first = next((index for index, each in enumerate(run) if each.label == task.label), 0)
    return [each for each in run[first:] if each.op == _TO_HOST] or run[-1:]
