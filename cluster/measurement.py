"""Carry a measurement of faults out: the loop between coordinator, pool and store."""

from collections.abc import Sequence
from typing import Protocol, assert_never

from cluster.campaign import EXIT_AGREED, EXIT_NOT_JUDGED, WAIT_SECONDS, Stop
from cluster.coordinator import Coordinator, Dispatch, Instruction, JobAdded, NoteLate, NoteLoss, Record, Replace
from cluster.job import TrialJob
from cluster.measure import Line
from cluster.pool import Pool
from cluster.store import Store
from cluster.trials import Trial
from workers.verdict import Lost


class MeasureProgress(Protocol):
    """Shows how far a measurement is."""

    def update(self, done: int, total: int, findings: int) -> None:
        """Look at the newest numbers; called several times a second."""


class Measurement:
    """Trials of faults in a campaign directory; one that was stopped goes on where it was."""

    def __init__(self, faults: Sequence[str], num_trials: int, traces_max: int, baseline: bool, store: Store) -> None:
        # All faults have a first trial before any has a second: a measurement that is stopped says a little of each.
        jobs = [TrialJob.of(fault, number, traces_max, baseline) for number in range(num_trials) for fault in faults]
        self._jobs = {job.key: job for job in jobs}
        self._store = store
        self.num_trials = num_trials
        known = {key: store.trial(key) for key in self._jobs}
        self._trials = {key: trial for key, trial in known.items() if trial is not None}
        self.lost: list[str] = []

    def run(self, pool: Pool, progress: MeasureProgress, stop: Stop) -> None:
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
        for instruction in instructions:
            match instruction:
                case Dispatch(slot=slot, job=key, attempt=attempt):
                    self._store.begin_trial(self._jobs[key], attempt, slot)
                    pool.dispatch(slot, self._jobs[key], attempt)
                case Replace(slot=slot, worker=worker):
                    pool.replace(slot, worker)
                case Record(job=key, attempt=attempt, result=result):
                    self._record(self._jobs[key], attempt, result)
                case NoteLoss(job=key, attempt=attempt, reason=reason):
                    self._store.note_loss(key, attempt, reason)
                case NoteLate(job=key, attempt=attempt, answer=answer):
                    self._store.note_late(key, attempt, answer)
                case _:
                    assert_never(instruction)

    def _record(self, job: TrialJob, attempt: int, result: object) -> None:
        if isinstance(result, Lost):
            self.lost.append(f"trial {job.number} of {job.fault}: {result.reason}")
            return
        assert isinstance(result, Trial), "a trial is answered by a trial"
        self._store.keep_trial(job, attempt, result)
        self._trials[job.key] = result


def measured_code(measurement: Measurement, lines: Sequence[Line], num_faults: int) -> int:
    """Return what a measurement comes to: a fault that some trial did not find was not judged to the end."""
    found = all(line.detected == measurement.num_trials for line in lines) and len(lines) == num_faults
    return EXIT_AGREED if found and not measurement.lost else EXIT_NOT_JUDGED
