"""Carry a hunt out: the loop between hunter, coordinator, pool and store."""

from collections.abc import Callable
from typing import Protocol

from cluster.campaigns.campaign import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED, WAIT_SECONDS, Stop
from cluster.campaigns.findings import Task
from cluster.campaigns.hunter import Hunter, Plan
from cluster.campaigns.instructions import obey
from cluster.dispatch.coordinator import Coordinator, Instruction, JobAdded, Record
from cluster.dispatch.job import AnyJob, ShardJob
from cluster.dispatch.pool import Pool
from cluster.storage.corpus import NO_CORPUS, Corpus
from cluster.storage.store import Store
from workers.run.shard import ShardReport


class HuntProgress(Protocol):
    """Shows how far a hunt is."""

    def update(self, hunter: Hunter) -> None:
        """Look at the newest numbers; called several times a second."""


class Hunt:
    """A hunt in a campaign directory, which keeps a snapshot of its corpus; one that was stopped goes on from there."""

    def __init__(self, plan: Plan, store: Store, num_traces: int | None, corpus: Corpus = NO_CORPUS) -> None:
        store.keep_plan(plan.model_dump_json())
        corpus.keep(store.folder)
        self.hunter = Hunter(plan, store, store.folder / "running", num_traces, corpus=corpus)
        self._store = store
        self._jobs: dict[str, Task] = {}
        self._slot: dict[str, int] = {}

    def run(self, pool: Pool, progress: HuntProgress, stop: Stop, may_begin: Callable[[], bool]) -> None:
        """Run until nothing is left to do or a stop is asked for; new shards are begun while `may_begin` says so."""
        coordinator = Coordinator(pool.slots)
        self.hunter.slots = pool.slots
        while stop.signum is None:
            may = may_begin()
            for task in self.hunter.tasks(pool.slots + 1 - coordinator.backlog, may):
                key = task.job.key
                self._jobs[key] = task
                added = JobAdded(key, self._store.attempts_made(key), task.losses_max, task.avoid)
                self._obey(pool, coordinator.handle(added))
            if coordinator.done and self.hunter.is_done(may):
                return
            for event in pool.wait(WAIT_SECONDS):
                self._obey(pool, coordinator.handle(event))
            progress.update(self.hunter)

    def _obey(self, pool: Pool, instructions: list[Instruction]) -> None:
        obey(instructions, pool, self._store, self._begin, self._record)

    def _begin(self, key: str, attempt: int, slot: int) -> AnyJob:
        job = self._jobs[key].job
        self._slot[key] = slot
        # A shard's traces are written ahead by its worker; the shrinker's candidates are proposed again.
        if isinstance(job, ShardJob):
            self._store.begin_attempt(key, attempt, slot)
        return job

    def _record(self, record: Record) -> None:
        job = self._jobs.pop(record.job).job
        if isinstance(job, ShardJob) and isinstance(record.result, ShardReport):
            self._store.keep_shard(job, record.attempt, record.result)
        self.hunter.take(record.job, record.result, record.deaths, self._slot.pop(record.job, -1))

    def exit_code(self) -> int:
        """Return what the hunt comes to; findings weigh more than gaps."""
        hunter = self.hunter
        if hunter.findings:
            return EXIT_FOUND
        gaps = hunter.canary.is_blind or not hunter.canary.rounds or hunter.mismatches or hunter.unjudged
        is_judged = hunter.tally.traces and not gaps and not self._store.contradictions()
        return EXIT_AGREED if is_judged else EXIT_NOT_JUDGED
