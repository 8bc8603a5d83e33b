"""Carry a measurement of faults out: the loop between coordinator, pool and store."""

from collections.abc import Sequence

from cluster.campaigns.campaign import EXIT_AGREED, EXIT_NOT_JUDGED, WAIT_SECONDS, Progress, Stop
from cluster.campaigns.instructions import obey
from cluster.dispatch.coordinator import Coordinator, Instruction, JobAdded, Record
from cluster.dispatch.job import TrialJob
from cluster.dispatch.pool import Pool
from cluster.statistics.fault_table import Line
from cluster.storage.store import Store
from workers.record.verdict import Lost
from workers.run.trials import Trial
from workers.targets.target import DEFAULT_CONFIG, RunConfig


class Measurement:
    """Trials of faults in a campaign directory; one that was stopped goes on where it was."""

    def __init__(
        self,
        faults: Sequence[str],
        num_trials: int,
        traces_max: int,
        baseline: bool,
        store: Store,
        config: RunConfig = DEFAULT_CONFIG,
    ) -> None:
        # All faults have a first trial before any has a second: a measurement that is stopped says a little of each.
        each = [(fault, number) for number in range(num_trials) for fault in faults]
        jobs = [TrialJob.of(fault, number, traces_max, baseline, config) for fault, number in each]
        self._jobs = {job.key: job for job in jobs}
        self._store = store
        self.num_trials = num_trials
        known = {key: store.trial(key) for key in self._jobs}
        self._trials = {key: trial for key, trial in known.items() if trial is not None}
        self.lost: list[str] = []

    def run(self, pool: Pool, progress: Progress, stop: Stop) -> None:
        """Run the trials that are left, or until a stop is asked for."""
        coordinator = Coordinator(pool.slots)
        for key in self._jobs:
            if key not in self._trials:
                self._obey(pool, coordinator.handle(JobAdded(key, self._store.attempts_made(key))))
        while not coordinator.done and stop.signum is None:
            for event in pool.wait(WAIT_SECONDS):
                self._obey(pool, coordinator.handle(event))
            found = sum(trial.detected.at is not None for trial in self._trials.values())
            progress.update(len(self._trials), len(self._jobs), found)

    def trials(self) -> list[Trial]:
        """Return the trials there are, by fault and number."""
        return sorted(self._trials.values(), key=lambda trial: (trial.fault, trial.number))

    def _obey(self, pool: Pool, instructions: list[Instruction]) -> None:
        obey(instructions, pool, self._store, self._begin, self._record)

    def _begin(self, key: str, attempt: int, slot: int) -> TrialJob:
        self._store.begin_attempt(key, attempt, slot)
        return self._jobs[key]

    def _record(self, record: Record) -> None:
        job, result = self._jobs[record.job], record.result
        if isinstance(result, Lost):
            self.lost.append(f"trial {job.number} of {job.fault}: {result.reason}")
            return
        assert isinstance(result, Trial), "a trial is answered by a trial"
        self._store.keep_trial(job, record.attempt, result)
        self._trials[job.key] = result


def measured_code(measurement: Measurement, lines: Sequence[Line], num_faults: int) -> int:
    """Return what a measurement comes to: a fault that some trial did not find was not judged to the end."""
    found = all(line.detected == measurement.num_trials for line in lines) and len(lines) == num_faults
    return EXIT_AGREED if found and not measurement.lost else EXIT_NOT_JUDGED
