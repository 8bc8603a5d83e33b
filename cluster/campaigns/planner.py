"""Planner: decides which jobs a campaign runs next, and processes their results.

It is independent of pools and processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cluster.dispatch.coordinator import LOSSES_MAX, Record
from cluster.dispatch.job import AnyJob


@dataclass(frozen=True, slots=True)
class Task:
    """A job, its maximum number of lost attempts, and the worker slot to avoid."""

    job: AnyJob
    losses_max: int = LOSSES_MAX
    avoid: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Progress of a campaign: `done` of `total` units (None: unlimited), and findings.

    `shrinking` counts findings that are being shrunk.

    Lost units are done as well. `expected` counts findings of planted faults, which are no part of `findings`; None for
    a campaign without planted faults.
    """

    done: int
    total: int | None
    findings: int
    shrinking: int = 0
    expected: int | None = None


class Planner(Protocol):
    """Interface of a campaign to its driver: next jobs, and results.

    Tasks depend only on the answers and their order. A planner stores the results that a resumed campaign needs.
    """

    def tasks(self, slots: int, room: int) -> Sequence[Task]:
        """Return tasks to add, for about this number of slots.

        At most `room` new ones, and all required ones.
        """

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        """Store that an attempt of a task begins on a worker slot."""

    def take(self, record: Record) -> None:
        """Process the only result of a task."""

    def is_done(self) -> bool:
        """Whether no job runs and none is left, if the last call of `tasks` returned nothing."""

    def counts(self) -> Counts:
        """Return the campaign's progress in its units: scenarios, traces, trials or candidates."""
