"""Determinism check of a hunt: some of its shards are judged twice.

Both reports of a shard must be equal.
"""

from cluster.campaigns.hunt.jobs import LOSSES_MAX_AGAIN, Ledger, ShardJobs
from cluster.campaigns.planner import Task
from cluster.storage.hunts import kills_worker
from scenarios.generation.shards import TRACES_PER_SHARD
from scenarios.spec import Value
from workers.run.shard import ShardReport

AGAIN_EVERY = 16


class MismatchEntry(Value):
    """A trace whose result differs when it is judged again, with both digests."""

    trace: int
    first: str
    again: str


class Repeats:
    """The shards of a hunt that are judged twice.

    `num_judged` were judged twice, `num_elsewhere` of them by two workers.
    """

    def __init__(self, jobs: ShardJobs, ledger: Ledger) -> None:
        self.mismatches: list[MismatchEntry] = []
        self.num_judged = self.num_elsewhere = 0
        self._jobs = jobs
        self._ledger = ledger
        self._due: list[Task] = []
        self._first: dict[int, tuple[ShardReport, int]] = {}

    def tasks(self) -> list[Task]:
        """Return the jobs to judge shards again that were added since the last call."""
        due, self._due = self._due, []
        return due

    def add(self, number: int, report: ShardReport, slot: int | None) -> None:
        """Plan the second judgement of a sampled shard, on another worker if there is one."""
        if number % AGAIN_EVERY or any(kills_worker(hit.verdict) for hit in report.hits):
            return
        job = self._jobs.job("again", number)
        self._first[number] = report, -1 if slot is None else slot
        known = self._ledger.shard(job.key)
        if known is None:
            self._due.append(Task(job, LOSSES_MAX_AGAIN, avoid=slot))
        else:
            self.take(number, known, None)

    def take(self, number: int, again: ShardReport, slot: int | None) -> None:
        """Compare a shard's second report with its first."""
        report, slot_before = self._first.pop(number)
        self.num_judged += 1
        self.num_elsewhere += slot != slot_before
        if again.model_copy(update={"ran": report.ran}) == report:
            return
        pairs = zip(report.digests, again.digests, strict=False)
        index = next((index for index, (one, other) in enumerate(pairs) if one != other), None)
        first, second = ("report", "another report") if index is None else (report.digests[index], again.digests[index])
        trace = number * TRACES_PER_SHARD + (index or 0)
        self.mismatches.append(MismatchEntry(trace=trace, first=first, again=second))
