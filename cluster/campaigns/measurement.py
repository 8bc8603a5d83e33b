"""Measurement: trials that count how many traces it takes to find each fault."""

from collections.abc import Sequence

from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_NOT_JUDGED
from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import AnyJob, TrialJob
from cluster.statistics.fault_table import Line, table
from cluster.storage.provenance import PlannedWork
from cluster.storage.store import Store
from workers.record.verdict import Lost
from workers.run.trials import Trial
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Measurement:
    """Planner of trials that count the traces until a fault is found; resumable."""

    def __init__(
        self,
        faults: Sequence[str],
        num_trials: int,
        traces_max: int,
        baseline: bool,
        store: Store,
        config: RunConfig = DEFAULT_CONFIG,
    ) -> None:
        # All faults have a first trial before any has a second: a stopped measurement covers each of them.
        each = [(fault, number) for number in range(num_trials) for fault in faults]
        jobs = [TrialJob.of(fault, number, traces_max, baseline, config) for fault, number in each]
        self._jobs = {job.key: job for job in jobs}
        self._store = store
        store.plan(PlannedWork(trials=tuple(self._jobs)))
        self.num_trials = num_trials
        known = {key: store.trial(key) for key in self._jobs}
        self._trials = {key: trial for key, trial in known.items() if trial is not None}
        self._is_asked = False
        self.lost: list[str] = []

    def tasks(self, slots: int, room: int) -> list[Task]:
        new = [] if self._is_asked else [job for key, job in self._jobs.items() if key not in self._trials]
        self._is_asked = True
        return [Task(job) for job in new]

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        self._store.begin_attempt(job.key, attempt, slot)

    def take(self, record: Record) -> None:
        job, result = self._jobs[record.job], record.result
        if isinstance(result, Lost):
            self.lost.append(f"trial {job.number} of {job.fault}: {result.reason}")
            return
        assert isinstance(result, Trial), "a trial is answered by a trial"
        self._store.keep_trial(job, record.attempt, result)
        self._trials[job.key] = result

    def is_done(self) -> bool:
        return len(self._trials) + len(self.lost) == len(self._jobs)

    def counts(self) -> Counts:
        found = sum(trial.detected.at is not None for trial in self._trials.values())
        return Counts(len(self._trials) + len(self.lost), len(self._jobs), 0, expected=found)

    def trials(self) -> list[Trial]:
        """Return the finished trials, by fault and number."""
        return sorted(self._trials.values(), key=lambda trial: (trial.fault, trial.number))


def measured_code(measurement: Measurement, lines: Sequence[Line]) -> int:
    """Return the exit code of a measurement of faults.

    A fault that was not found in every trial counts as not judged.

    Trials that were not started because of the time or a signal do not count.
    """
    found = all(line.detected == line.trials for line in lines)
    return EXIT_AGREED if found and not measurement.lost else EXIT_NOT_JUDGED


def measured_lines(lines: Sequence[Line], faults: Sequence[str]) -> list[str]:
    """Return the table of a measurement, and the number of faults without a measurement."""
    if not lines:
        return [f"faults: none of {len(faults)} was measured before the time for it ended"] if faults else []
    found, left = table(lines), len(faults) - len(lines)
    if left:
        found.append(f"not measured before the time for it ended: {left} of {len(faults)} faults")
    return found
