"""Driver: the main loop of a campaign.

It connects the planner, the coordinator, the worker pool and the store.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Protocol, assert_never

from cluster.campaigns.planner import Counts, Planner
from cluster.dispatch.coordinator import (
    Coordinator,
    Dispatch,
    Instruction,
    JobAdded,
    NoteLate,
    NoteLoss,
    Record,
    Replace,
)
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import AnyJob
from cluster.dispatch.pool import WorkerPool
from cluster.dispatch.ray_job import JobProgress
from cluster.dispatch.session import Stop
from cluster.storage.store import Store

WAIT_SECONDS = 0.25


class Progress(Protocol):
    """Interface of progress displays."""

    def update(self, counts: Counts) -> None:
        """Show the newest counts; called several times a second."""


def drive(
    planner: Planner,
    pool: WorkerPool,
    stop: Stop,
    progress: Progress | None = None,
    store: Store | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> None:
    """Run a planner's tasks until none is left, a stop is requested, or the time is over.

    A store records lost attempts and late answers, and gives the number of earlier attempts of each job.

    Raises:
        PoolError: no worker can be started, or Ray is gone; jobs without a result run again with the same command.
    """
    driver = _Driver(planner, pool, store)
    job_progress = JobProgress(None if store is None else store.folder)
    while stop.signum is None and has_time():
        driver.add_tasks()
        if planner.is_done():
            break
        driver.wait()
        counts = planner.counts()
        if progress is not None:
            progress.update(counts)
        if store is not None:
            store.progress.note(counts.done, counts.total, counts.findings, counts.shrinking, counts.expected)
        job_progress.update(counts.done, counts.total, counts.findings)
    counts = planner.counts()
    job_progress.close(counts.done, counts.total, counts.findings)


class _Driver:
    """State of `drive`: jobs without a result, and the coordinator that assigns them."""

    def __init__(self, planner: Planner, pool: WorkerPool, store: Store | None) -> None:
        self._planner = planner
        self._pool = pool
        self._store = store
        self._coordinator = Coordinator(pool.slots)
        self._jobs: dict[str, AnyJob] = {}

    def add_tasks(self) -> None:
        """Pass jobs from the planner to the coordinator: one more than there are worker slots."""
        slots = self._pool.slots
        for task in self._planner.tasks(slots, slots + 1 - self._coordinator.backlog):
            key = task.job.key
            assert key not in self._jobs, f"job {key} was asked for twice"
            self._jobs[key] = task.job
            attempts = self._store.attempts_made(key) if self._store is not None else 0
            self._carry_out(self._coordinator.handle(JobAdded(key, attempts, task.losses_max, task.avoid)))

    def wait(self) -> None:
        """Wait for the pool's events, and carry out the coordinator's instructions.

        Raises:
            PoolError: jobs wait and no slot has a worker; earlier results are stored.
        """
        events = self._pool.wait(WAIT_SECONDS)
        with self._store.transaction() if self._store is not None else nullcontext():
            for event in events:
                self._carry_out(self._coordinator.handle(event))
        assert len(self._jobs) == self._coordinator.backlog, "a job without a result is the coordinator's"
        stranded = self._coordinator.stranded
        if stranded is not None and self._jobs:
            raise PoolError(stranded)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Dispatch(slot=slot, job=key, attempt=attempt):
                    self._planner.begin(self._jobs[key], attempt, slot)
                    self._pool.dispatch(slot, self._jobs[key], attempt)
                case Replace(slot=slot, worker=worker):
                    self._pool.replace(slot, worker)
                case Record():
                    del self._jobs[instruction.job]
                    self._planner.take(instruction)
                case NoteLoss(job=key, attempt=attempt, reason=reason):
                    if self._store is not None:
                        self._store.note_loss(key, attempt, reason)
                case NoteLate(job=key, attempt=attempt, answer=answer):
                    if self._store is not None:
                        self._store.note_late(key, attempt, answer)
                case _:
                    assert_never(instruction)
