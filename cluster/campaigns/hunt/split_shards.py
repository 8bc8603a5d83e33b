"""Split shards: a shard that kills its workers is judged trace by trace, to find the one that does it."""

from cluster.campaigns.hunt.jobs import Ledger, ShardJobs
from cluster.campaigns.hunt.shard_reports import joined
from cluster.campaigns.planner import Task
from scenarios.shards import Shard
from workers.run.shard import ShardReport


class SplitShards:
    """Shards that were split, with the reports of their traces so far."""

    def __init__(self, jobs: ShardJobs, ledger: Ledger) -> None:
        self._jobs = jobs
        self._ledger = ledger
        self._due: list[Task] = []
        self._parts: dict[int, dict[int, ShardReport]] = {}
        self._given_up: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._parts or number in self._given_up

    @property
    def num_done(self) -> int:
        """Return the number of traces judged so far of shards whose others are not."""
        return sum(map(len, self._parts.values()))

    def tasks(self) -> list[Task]:
        """Return the jobs that became due since the last call."""
        due, self._due = self._due, []
        return due

    def split(self, shard: Shard) -> None:
        """Have each trace of a shard judged in a job of its own."""
        self._parts[shard.number] = {}
        indexes = range(shard.first, shard.first + shard.traces)
        self._due += [Task(self._jobs.of_trace(shard.number, index)) for index in indexes]

    def take(self, shard: Shard, report: ShardReport) -> ShardReport | None:
        """Take the report of one trace; return that of the whole shard, which is kept, once there are all."""
        if shard.number in self._given_up:
            return None
        parts = self._parts[shard.number]
        parts[shard.first] = report
        whole = self._jobs.job("hunt", shard.number)
        if len(parts) < whole.shard.traces:
            return None
        del self._parts[shard.number]
        report = joined([parts[index] for index in sorted(parts)])
        self._ledger.keep_shard(whole, 0, report)
        return report

    def give_up(self, number: int) -> None:
        """Forget what was judged of a split shard of which a trace could not be, and what comes of its others."""
        if self._parts.pop(number, None) is not None:
            self._given_up.add(number)
