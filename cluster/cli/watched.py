"""Suite that is watched: it times each scenario, prints a line as each ends, and says when to stop."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TextIO

from cluster.campaigns.budget import Budget
from cluster.campaigns.planner import Counts, Task
from cluster.campaigns.suite import Suite
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob


class WatchedSuite:
    """Planner around a suite that times it; `stream` gets a line for each result, None for silence."""

    def __init__(
        self, suite: Suite, stream: TextIO | None, maxfail: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._suite = suite
        self._stream = stream
        self._maxfail = maxfail
        self._clock = clock
        self._names: Mapping[str, str] = {scenario.job.key: scenario.name for scenario in suite.scenarios}
        self._begun: dict[str, float] = {}
        self.seconds: dict[str, float] = {}

    def tasks(self, slots: int, room: int) -> Sequence[Task]:
        return self._suite.tasks(slots, room)

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        self._suite.begin(job, attempt, slot)
        self._begun[job.key] = self._clock()

    def take(self, record: Record) -> None:
        self._suite.take(record)
        name = self._names[record.job]
        if record.job in self._begun:
            self.seconds[name] = self._clock() - self._begun[record.job]
        if self._stream is not None:
            verdict = self._suite.results[record.job].judgement.verdict
            print(f"{verdict.kind:<9} {name}  {self.seconds.get(name, 0.0):.2f} s", file=self._stream, flush=True)

    def is_done(self) -> bool:
        return self._suite.is_done()

    def counts(self) -> Counts:
        return self._suite.counts()

    def may_go_on(self, budget: Budget) -> bool:
        """Whether time is left and there are fewer findings than `maxfail`."""
        return budget.has_time() and (self._maxfail is None or self._suite.counts().findings < self._maxfail)

    def slowest(self, count: int) -> list[str]:
        """Return lines that name the scenarios that took longest, the longest first."""
        ranked = sorted(self.seconds.items(), key=lambda item: (-item[1], item[0]))[:count]
        return [f"{seconds:8.2f} s  {name}" for name, seconds in ranked]
