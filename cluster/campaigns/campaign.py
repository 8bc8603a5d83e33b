"""Carry a campaign out: the one loop between coordinator, pool and store, and the verdict on the whole."""

import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Protocol

from cluster.campaigns.instructions import obey
from cluster.dispatch.coordinator import Coordinator, Instruction, JobAdded, Record
from cluster.dispatch.job import Job
from cluster.dispatch.pool import Pool
from cluster.storage.store import Result, Store
from workers.record.verdict import Agreed, Judgement, Lost, Verdict, is_finding, is_too_ambiguous

EXIT_AGREED, EXIT_FOUND, EXIT_BAD_INPUT, EXIT_NOT_JUDGED = 0, 1, 2, 3
WAIT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Scenario:
    """A job under the name the user knows it by; two scenarios with the same trace share a job."""

    name: str
    job: Job


@dataclass(slots=True)
class Stop:
    """A wish to stop, set by a signal handler; `signum` says by which."""

    signum: int | None = None


class Progress(Protocol):
    """Shows how far a campaign is."""

    def update(self, done: int, total: int, findings: int) -> None:
        """Take the newest counts; called several times a second."""


class Quiet:
    """Shows nothing."""

    def update(self, done: int, total: int, findings: int) -> None:
        """Do nothing."""


def exit_code(verdicts: Iterable[Verdict | None]) -> int:
    """Return what a campaign comes to; None is a scenario without a verdict. Findings weigh more than gaps."""
    seen = list(verdicts)
    if any(verdict is not None and is_finding(verdict) for verdict in seen):
        return EXIT_FOUND
    agreed = [verdict.stats for verdict in seen if isinstance(verdict, Agreed)]
    return EXIT_AGREED if len(agreed) == len(seen) and not is_too_ambiguous(agreed) else EXIT_NOT_JUDGED


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signal(stop: Stop) -> Iterator[Callable[[], None]]:
    """Let the first SIGINT or SIGTERM stop the campaign after the results at hand; a second one acts at once.

    Yields a function to be called once Ray has started: Ray puts a handler for SIGTERM of its own in place, and what
    that one raises is swallowed at a fork. The wakeup pipe has seen the signal all the same.
    """

    def handler(signum: int, frame: FrameType | None) -> None:
        stop.signum = signum
        signal.signal(signum, before[signal.Signals(signum)])

    def arm() -> None:
        seen = os.read(reader, 4096) if select.select([reader], [], [], 0)[0] else b""
        stop.signum = next((signum for signum in seen if signum in SIGNALS), stop.signum)
        for signum in SIGNALS:
            signal.signal(signum, handler)

    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {signum: signal.getsignal(signum) for signum in SIGNALS}
    wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    arm()
    try:
        yield arm
    finally:
        for signum, previous in before.items():
            signal.signal(signum, previous)
        signal.set_wakeup_fd(wakeup_before)
        os.close(reader)
        os.close(writer)


class Campaign:
    """Scenarios, and the store that holds their results so far."""

    def __init__(self, scenarios: Sequence[Scenario], store: Store) -> None:
        self.scenarios = scenarios
        self._store = store
        self._by_key: dict[str, Scenario] = {}
        for scenario in scenarios:
            self._by_key.setdefault(scenario.job.key, scenario)
        found = {key: store.result(key) for key in self._by_key}
        self.results: dict[str, Result] = {key: result for key, result in found.items() if result is not None}
        self.kept = len(self.results)

    @property
    def missing(self) -> list[Job]:
        """Return the jobs without a result, in the order of the scenarios."""
        return [scenario.job for key, scenario in self._by_key.items() if key not in self.results]

    def verdicts(self) -> list[Verdict | None]:
        """Return the verdict of each scenario, None where there is no result."""
        results = (self.results.get(scenario.job.key) for scenario in self.scenarios)
        return [None if result is None else result.judgement.verdict for result in results]

    def exit_code(self) -> int:
        """Return what the campaign comes to so far; attempts that contradict each other leave it unjudged."""
        code = exit_code(self.verdicts())
        return EXIT_NOT_JUDGED if code == EXIT_AGREED and self._store.contradictions() else code

    def run(self, pool: Pool, progress: Progress, stop: Stop) -> None:
        """Run until every job has its result or a stop is asked for; every result is on the disk when it counts."""
        coordinator = Coordinator(pool.slots)
        for job in self.missing:
            self._obey(pool, coordinator.handle(JobAdded(job.key, self._store.attempts_made(job.key))))
        findings = sum(is_finding(result.judgement.verdict) for result in self.results.values())
        while not coordinator.done and stop.signum is None:
            for event in pool.wait(WAIT_SECONDS):
                recorded = self._obey(pool, coordinator.handle(event))
                findings += sum(is_finding(result.judgement.verdict) for result in recorded)
            progress.update(len(self.results), len(self._by_key), findings)

    def _obey(self, pool: Pool, instructions: list[Instruction]) -> list[Result]:
        """Carry instructions out and return the results that were recorded."""
        recorded: list[Result] = []
        obey(instructions, pool, self._store, self._begin, lambda record: recorded.append(self._record(record)))
        return recorded

    def _begin(self, key: str, attempt: int, slot: int) -> Job:
        scenario = self._by_key[key]
        self._store.begin(scenario.job, attempt, slot, scenario.name)
        return scenario.job

    def _record(self, record: Record) -> Result:
        scenario = self._by_key[record.job]
        judgement = record.result
        if isinstance(judgement, Lost):
            judgement = Judgement(verdict=judgement, trace=scenario.job.trace, schedules=0)
        assert isinstance(judgement, Judgement), "a job of a trace is answered by a judgement"
        result = self._store.record(scenario.job, record.attempt, judgement, scenario.name)
        self.results[record.job] = result
        return result
