"""Split shards: a shard that kills workers runs as one job per trace.

A shard that kills its workers is judged trace by trace, to find the fatal one. A shard whose report ended with a
finding continues with the next trace.
"""

from cluster.campaigns.hunt.jobs import Ledger, ShardJobs
from cluster.campaigns.hunt.shard_reports import join_reports
from cluster.campaigns.planner import Task
from scenarios.generation.shards import Shard
from workers.run.shard import Hit, ShardReport


class SplitShards:
    """Shards that run as one job per trace, with the reports so far.

    The reports are by shard number and by the index of their first trace.
    """

    def __init__(self, jobs: ShardJobs, ledger: Ledger) -> None:
        self._jobs = jobs
        self._ledger = ledger
        self._due: list[Task] = []
        self._parts: dict[int, dict[int, ShardReport]] = {}
        self._ended: dict[int, list[ShardReport]] = {}
        self._given_up: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number in self._parts or number in self._given_up

    @property
    def num_done(self) -> int:
        """Return the number of judged traces in incomplete split shards."""
        return sum(report.traces for parts in self._parts.values() for report in parts.values())

    def tasks(self) -> list[Task]:
        """Return the one-trace jobs that `split` has added since the last call of `tasks`."""
        due, self._due = self._due, []
        return due

    def split(self, shard: Shard) -> None:
        """Split a shard into one job for each trace."""
        self._parts.setdefault(shard.number, {})
        indexes = range(shard.first, shard.first + shard.traces)
        self._due += [Task(self._jobs.of_trace(shard.number, index)) for index in indexes]

    def take(self, shard: Shard, report: ShardReport) -> ShardReport | None:
        """Store the report of one job of a split shard.

        Once all parts have one, store and return the report of the whole shard.
        """
        if shard.number in self._given_up:
            return None
        parts = self._parts.setdefault(shard.number, {})
        parts[shard.first] = report
        num_left = shard.traces - report.traces
        if num_left:
            self._ended.setdefault(shard.number, []).append(report)
            first = shard.first + report.traces
            self._due.append(Task(self._jobs.job("hunt", shard.number, first=first, traces=num_left)))
        whole = self._jobs.job("hunt", shard.number)
        if sum(part.traces for part in parts.values()) < whole.shard.traces:
            return None
        del self._parts[shard.number]
        self._ended.pop(shard.number, None)
        report = join_reports([parts[index] for index in sorted(parts)])
        self._ledger.keep_shard(whole, 0, report)
        return report

    def give_up(self, number: int) -> tuple[Hit, ...]:
        """Discard a split shard's reports, as one of its traces could not be judged.

        Returns the hits of the reports that ended with a finding: these findings were already displayed.
        """
        if self._parts.pop(number, None) is not None:
            self._given_up.add(number)
        return join_reports(self._ended.pop(number, [])).hits
