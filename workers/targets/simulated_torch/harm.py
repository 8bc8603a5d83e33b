"""Harm of a race: whether another order of tasks changes what those read that race, and what the host is given.

Two runs of one program, under eager and under lazy, are compared task by task (`digests`). A race is benign where the
tasks that are its sides read and wrote the same bytes in both; masked where they did not, but every copy to the host
did; else harmful. Where none of its tasks reads, the host does, or nobody: there the runs are compared whole.
Does not verify: other schedules than these two; what the host reads without a copy, and whether it looks at what it is
given; whether another race of the same runs did it.
"""

from collections.abc import Sequence

from workers.targets.simulated_torch.digests import TaskDigests, first_difference
from workers.targets.simulated_torch.reports import Access, Race

_HOST, _TO_HOST = "host", "copy_d2h"


def harm_of(race: Race, eager: Sequence[TaskDigests], lazy: Sequence[TaskDigests]) -> str:
    """Say whether a race did harm, and to which task first, from what the tasks of both runs read and wrote."""
    sides = [side for side in (race.first, race.second) if side.actor != _HOST]
    found = first_difference(_of(sides, eager), _of(sides, lazy))
    if found is None and all(side.write for side in sides):
        found = first_difference(eager, lazy)
    if found is None:
        return "benign under eager and lazy: its tasks read and wrote the same bytes"
    given = first_difference(_given(eager, found.task), _given(lazy, found.task))
    if given is None:
        return f"masked: under lazy {_told(found.task)}: {found.what}; the host was given the same bytes"
    return f"harmful: under lazy {_told(found.task)}: {found.what}; the host was given others by {_told(given.task)}"


def _of(sides: Sequence[Access], run: Sequence[TaskDigests]) -> list[TaskDigests]:
    """Return the tasks that sides launched: the same op in the same step, from the same line."""
    labels = {(side.op, side.step, side.lines[:1]) for side in sides}
    return [task for task in run if (task.op, task.step, task.lines[:1]) in labels]


def _given(run: Sequence[TaskDigests], task: TaskDigests) -> Sequence[TaskDigests]:
    """Return from a task on those that give the host something: copies to it, or where there are none the last task."""
    first = next((index for index, each in enumerate(run) if each.label == task.label), 0)
    return [each for each in run[first:] if each.op == _TO_HOST] or run[-1:]


def _told(task: TaskDigests) -> str:
    return f"{task.op}@{task.step}" + (f" ({task.lines[0]})" if task.lines else "")
