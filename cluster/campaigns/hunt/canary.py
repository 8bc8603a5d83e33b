"""Canary: a planted fault that a hunt must find repeatedly, as proof that it can find bugs.

If it does not, its results prove nothing.
"""

from cluster.campaigns.hunt.jobs import LOSSES_MAX_AGAIN, Ledger, ShardJobs
from cluster.campaigns.planner import Task
from scenarios.generation.shards import TRACES_PER_SHARD
from workers.run.shard import Hit, ShardReport

CANARY_EVERY = 256
CANARY_SHARDS_MAX = 8


class CanarySearch:
    """Search for the canary (a planted fault); it starts again every `CANARY_EVERY` shards.

    Its shards run one at a time.

    `rounds` counts the finished searches and `tried` the shards since the last one. `first` is the first hit, after
    `traces` traces of the first search.
    """

    def __init__(self, jobs: ShardJobs, ledger: Ledger) -> None:
        self.rounds = self.tried = self.traces = 0
        self.first: Hit | None = None
        self._jobs = jobs
        self._ledger = ledger
        self._number = 0
        self._is_running = False

    @property
    def is_blind(self) -> bool:
        """Return whether the last `CANARY_SHARDS_MAX` shards did not find the canary.

        The hunt then proves nothing.
        """
        return self.tried >= CANARY_SHARDS_MAX

    def task(self, num_judged: int) -> Task | None:
        """Return the next shard that searches for the canary, if one is due and none is running.

        `num_judged` is the number of judged shards of the hunt.
        """
        while self._jobs.settings.canary and not self._is_running and not self.is_blind:
            if self.rounds * CANARY_EVERY > num_judged:
                break
            job = self._jobs.job("canary", self._number)
            known = self._ledger.shard(job.key)
            if known is None:
                self._is_running = True
                return Task(job, LOSSES_MAX_AGAIN)
            self.take(known)
        return None

    def take(self, report: ShardReport | None) -> None:
        """Process the report of a canary shard; None if the shard was lost."""
        self._is_running = False
        self._number += 1
        self.tried += 1
        if report is None or not report.hits:
            return
        if self.first is None:
            self.first = report.hits[0]
            self.traces = (self._number - 1) * TRACES_PER_SHARD + self.first.index + 1
        self.rounds, self.tried = self.rounds + 1, 0
