"""Suite that is watched: it times each scenario, prints a line as each ends, and says when to stop."""

import time
from collections.abc import Sequence
from typing import TextIO

from cluster.campaigns.budget import Budget
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob
from cluster.storage.store import Store


class WatchedSuite(Suite):
    """Suite that times its scenarios; `stream` gets a line for each result, None for silence."""

    def __init__(self, scenarios: Sequence[Scenario], store: Store, stream: TextIO | None, maxfail: int | None) -> None:
        super().__init__(scenarios, store)
        self._stream = stream
        self._maxfail = maxfail
        self._names = {scenario.job.key: scenario.name for scenario in scenarios}
        self._begun: dict[str, float] = {}
        self.seconds: dict[str, float] = {}

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        super().begin(job, attempt, slot)
        self._begun[job.key] = time.monotonic()

    def take(self, record: Record) -> None:
        super().take(record)
        name = self._names[record.job]
        if record.job in self._begun:
            self.seconds[name] = time.monotonic() - self._begun[record.job]
        if self._stream is not None:
            verdict = self.results[record.job].judgement.verdict
            print(f"{verdict.kind:<9} {name}  {self.seconds.get(name, 0.0):.2f} s", file=self._stream, flush=True)

    def may_go_on(self, budget: Budget) -> bool:
        """Whether time is left and there are fewer findings than `maxfail`."""
        return budget.has_time() and (self._maxfail is None or self.counts().findings < self._maxfail)

    def slowest(self, count: int) -> list[str]:
        """Return lines that name the scenarios that took longest, the longest first."""
        ranked = sorted(self.seconds.items(), key=lambda item: (-item[1], item[0]))[:count]
        return [f"{seconds:8.2f} s  {name}" for name, seconds in ranked]
