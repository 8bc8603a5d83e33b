"""Harm of a race: whether another order of tasks changes what the racing tasks read, and what the host is given.

Two runs of one program, under eager and under lazy, are compared task by task (`digests`). A race is benign where the
tasks that are its sides read and wrote the same bytes in both; masked where they did not, but every copy to the host
did; else harmful. Where none of its tasks reads, the host may: then the runs are compared whole.
Does not verify: other schedules than these two; what the host reads without a copy, and whether it looks at what it is
given; whether another race of the same runs caused the difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from workers.targets.simulated_torch.digests import Difference, TaskDigests, first_difference
from workers.targets.simulated_torch.reports import Access, Race

_HOST, _TO_HOST = "host", "copy_d2h"


@dataclass(frozen=True, slots=True)
class RaceHarm:
    """What a race changes: the first of its tasks that differs, and the first that gives the host other bytes."""

    kind: Literal["benign", "masked", "harmful"]
    first: Difference | None = None
    given: TaskDigests | None = None


def harm_of(race: Race, eager: Sequence[TaskDigests], lazy: Sequence[TaskDigests]) -> RaceHarm:
    """Return the harm of a race, from what the tasks of both runs read and wrote."""
    sides = [side for side in (race.first, race.second) if side.actor != _HOST]
    found = first_difference(_of(sides, eager), _of(sides, lazy))
    if found is None and all(side.write for side in sides):
        found = first_difference(eager, lazy)
    if found is None:
        return RaceHarm("benign")
    given = first_difference(_given(eager, found.task), _given(lazy, found.task))
    return RaceHarm("masked", found) if given is None else RaceHarm("harmful", found, given.task)


def _of(sides: Sequence[Access], run: Sequence[TaskDigests]) -> list[TaskDigests]:
    """Return the tasks that sides launched: the same op in the same step, from the same line."""
    labels = {(side.op, side.step, side.lines[:1]) for side in sides}
    return [task for task in run if (task.op, task.step, task.lines[:1]) in labels]


def _given(run: Sequence[TaskDigests], task: TaskDigests) -> Sequence[TaskDigests]:
    """Return the tasks from one on that give the host something: copies to it, or else the last task of the run."""
    first = next((index for index, each in enumerate(run) if each.label == task.label), 0)
    return [each for each in run[first:] if each.op == _TO_HOST] or run[-1:]
