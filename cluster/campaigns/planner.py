"""Planner: decides what a campaign runs next and takes the results; it knows nothing of pools and processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.dispatch.coordinator import LOSSES_MAX, Record
from cluster.dispatch.job import AnyJob


@dataclass(frozen=True, slots=True)
class Task:
    """A job, the number of lost attempts after which it is given up, and the slot it should not run on."""

    job: AnyJob
    losses_max: int = LOSSES_MAX
    avoid: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """How far a campaign is: units done of `total` (None if there is no bound), findings, those being shrunk.

    What was lost is done: nothing more comes of it.
    `expected` are those that a campaign looks for, beside the others; None where it looks for none in particular.
    """

    done: int
    total: int | None
    findings: int
    shrinking: int = 0
    expected: int | None = None


class Planner(Protocol):
    """A campaign as its driver sees it.

    The same answers in the same order give the same tasks; what must not be lost it writes to a store of its own.
    """

    def tasks(self, slots: int, room: int) -> Sequence[Task]:
        """Return the tasks to add for about this many slots; `room` are wanted, owed ones come regardless."""

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        """Write an attempt of a task down, just before it runs on a slot."""

    def take(self, record: Record) -> None:
        """Take the only result of a task."""

    def is_done(self) -> bool:
        """Whether nothing is left to run or to wait for, as of the last `tasks`."""

    def counts(self) -> Counts:
        """Return how far the campaign is, in units of its own: scenarios, traces, trials or candidates."""
