"""Totals of a hunt: sums over the reports of its shards, taken in the order of the shards, whoever is faster."""

from collections.abc import Iterator

from cluster.campaigns.hunt.jobs import ShardJobs
from cluster.campaigns.hunt.shard_reports import Tally
from scenarios.shards import GENERATORS, TRACES_PER_SHARD, Generator
from workers.run.shard import ShardReport


class Totals:
    """Sums over the first `num_shards` shards: `tally` over all, `shares` over the traces of each generator.

    `firsts` has the number of the first trace that hit each probe.
    """

    def __init__(self, jobs: ShardJobs) -> None:
        self.tally = Tally()
        self.shares: dict[Generator, Tally] = {generator: Tally() for generator in GENERATORS}
        self.firsts: dict[str, int] = {}
        self.num_shards = 0
        self._jobs = jobs
        self._waiting: dict[int, ShardReport] = {}

    def add(self, number: int, report: ShardReport) -> None:
        """Add the report of a shard, which waits for those of all shards before it."""
        self._waiting[number] = report

    def fold(self) -> Iterator[tuple[int, ShardReport]]:
        """Sum up the reports that wait for none before them, and yield each with the number of its shard."""
        while self.num_shards in self._waiting:
            number, report = self.num_shards, self._waiting.pop(self.num_shards)
            self.num_shards += 1
            self.tally.add(report)
            self.shares[self._jobs.job("hunt", number).shard.generator].add(report)
            for probe, index in report.firsts.items():
                self.firsts.setdefault(probe, number * TRACES_PER_SHARD + index)
            yield number, report
