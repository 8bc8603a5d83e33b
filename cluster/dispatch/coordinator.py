"""Coordinator: a pure state machine from events of a worker pool to instructions for it.

The instructions are for the pool and for the store.

It has no clock, no processes and no randomness: the same events give the same instructions. Every job ends with exactly
one `Record`, even if attempts are lost, repeated or late, unless `stranded` says that no slot has a worker.

The result of a job depends only on its own attempts: it is `Lost` only if its workers died after they had begun it, or
if its attempt raised. A worker that dies during its start, or before it begins the job, never counts against the job.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from cluster.dispatch.job import Answer
from workers.record.verdict import Lost

LOSSES_MAX = 3
IDLE_LOSSES_MAX = 3


@dataclass(frozen=True, slots=True)
class JobAdded:
    """Event: a job was added; earlier runs of the campaign made `attempts` attempts at it.

    After `losses_max` lost attempts it is given up. It runs on slot `avoid` only if there is no other.
    """

    job: str
    attempts: int = 0
    losses_max: int = LOSSES_MAX
    avoid: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """Event: worker number `worker` of a slot has started and can take a job.

    Workers of a slot are numbered from 0.
    """

    slot: int
    worker: int


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """Event: a worker died, was killed, or never started.

    `had_begun` says whether it had received its job.
    """

    slot: int
    worker: int
    reason: str
    had_begun: bool


@dataclass(frozen=True, slots=True)
class ResultArrived:
    """Event: an attempt was answered, perhaps after it had been counted as lost."""

    job: str
    attempt: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class AttemptRaised:
    """Event: our own code raised an exception in the worker.

    This is neither a verdict on the trace nor the death of a process.
    """

    job: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Instruction: run an attempt of a job on a worker."""

    slot: int
    worker: int
    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Instruction: kill a slot's worker if it is alive, and start another one.

    The next worker has the number `worker`.
    """

    slot: int
    worker: int


@dataclass(frozen=True, slots=True)
class Record:
    """Instruction: store the result of a job.

    `deaths` has the cause of death of each worker, or why it was killed.
    """

    job: str
    attempt: int
    result: Answer | Lost
    deaths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoteLoss:
    """Instruction: record that an attempt was lost."""

    job: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class NoteLate:
    """Instruction: record an answer that came after the job's result; both must be equal."""

    job: str
    attempt: int
    answer: Answer


Event: TypeAlias = JobAdded | WorkerReady | WorkerLost | ResultArrived | AttemptRaised
Instruction: TypeAlias = Dispatch | Replace | Record | NoteLoss | NoteLate


@dataclass(slots=True)
class _Slot:
    """State of one slot, which has at most one worker.

    `job` is the running job, `idle_losses` counts workers lost since one last began a job.

    `has_started` is set once a worker of the slot was ready. A retired slot gets no further worker.
    """

    worker: int = 0
    ready: bool = False
    has_started: bool = False
    retired: bool = False
    idle_losses: int = 0
    job: str | None = None


@dataclass(slots=True)
class _Job:
    """A job without a result.

    `attempt` is the newest one, `lost` the slot and reason of each lost attempt.
    """

    attempt: int
    losses_max: int
    avoid: int | None
    lost: list[tuple[int, str]] = field(default_factory=list)


class Coordinator:
    """State machine of jobs and worker slots; only `handle` changes it."""

    def __init__(self, num_slots: int) -> None:
        assert num_slots >= 1
        self._slots = [_Slot() for _ in range(num_slots)]
        self._open: dict[str, _Job] = {}
        self._queue: deque[str] = deque()
        self._reason = ""

    @property
    def backlog(self) -> int:
        """Return the number of jobs without a result."""
        return len(self._open)

    @property
    def in_flight(self) -> dict[int, str]:
        """Return the running job of each busy slot."""
        return {index: slot.job for index, slot in enumerate(self._slots) if slot.job is not None}

    @property
    def stranded(self) -> str | None:
        """Return why no job can run any more; None if a slot has or may get a worker.

        Open jobs get no result.
        """
        if not all(slot.retired for slot in self._slots):
            return None
        assert not self.in_flight, "a retired slot runs nothing"
        again = " again" if any(slot.has_started for slot in self._slots) else ""
        return f"no worker could be started{again}: {self._reason}"

    def handle(self, event: Event) -> list[Instruction]:
        """Apply one event and return the resulting instructions, in order."""
        match event:
            case JobAdded():
                instructions = self._add(event)
            case WorkerReady():
                instructions = self._ready(event)
            case WorkerLost():
                instructions = self._lost(event)
            case ResultArrived():
                instructions = self._result(event)
            case AttemptRaised():
                instructions = self._raised(event)
        return instructions + self._assign()

    def _add(self, event: JobAdded) -> list[Instruction]:
        assert event.job not in self._open, f"job {event.job} was added twice"
        self._open[event.job] = _Job(event.attempts, event.losses_max, event.avoid)
        self._queue.append(event.job)
        return []

    def _ready(self, event: WorkerReady) -> list[Instruction]:
        slot = self._slots[event.slot]
        assert event.worker <= slot.worker, f"slot {event.slot} has had no worker {event.worker}"
        if slot.worker == event.worker and not slot.retired:
            assert slot.job is None, f"worker {event.worker} of slot {event.slot} says twice that it is ready"
            slot.ready = slot.has_started = True
        return []

    def _lost(self, event: WorkerLost) -> list[Instruction]:
        slot = self._slots[event.slot]
        assert event.worker <= slot.worker, f"slot {event.slot} has had no worker {event.worker}"
        if slot.worker != event.worker or slot.retired:
            return []
        job = slot.job
        slot.job, slot.ready = None, False
        slot.idle_losses = 0 if event.had_begun else slot.idle_losses + 1
        instructions = [] if job is None else self._requeue_or_quarantine(job, event)
        if slot.idle_losses < IDLE_LOSSES_MAX:
            slot.worker += 1
            return [*instructions, Replace(event.slot, slot.worker)]
        slot.retired, self._reason = True, event.reason
        return instructions

    def _requeue_or_quarantine(self, key: str, event: WorkerLost) -> list[Instruction]:
        """Queue a job again after a lost attempt; after `losses_max` losses, record it as lost.

        It is queued before all others.

        A worker that died before it began the job does not count against the job.
        """
        job = self._open[key]
        assert key not in self._queue, f"job {key} waits, and was lost by a slot"
        note = NoteLoss(key, job.attempt, event.reason)
        if event.had_begun:
            job.lost.append((event.slot, event.reason))
        if len(job.lost) < job.losses_max:
            self._queue.appendleft(key)
            return [note]
        return [note, self._record(key, Lost(reason=_quarantine_reason(job.lost)))]

    def _result(self, event: ResultArrived) -> list[Instruction]:
        index = self._slot_of(event.job, event.attempt)
        if index is None:
            return [NoteLate(event.job, event.attempt, event.answer)]
        slot = self._slots[index]
        assert slot.ready, f"slot {index} answers, and its worker is not there"
        slot.job, slot.idle_losses = None, 0
        return [self._record(event.job, event.answer)]

    def _raised(self, event: AttemptRaised) -> list[Instruction]:
        """Record a job as lost, since a retry would raise the same exception; replace the worker."""
        index = self._slot_of(event.job, event.attempt)
        if index is None:
            return []
        slot = self._slots[index]
        assert slot.ready, f"slot {index} raises, and its worker is not there"
        slot.job, slot.ready = None, False
        slot.worker += 1
        return [self._record(event.job, Lost(reason=event.reason)), Replace(index, slot.worker)]

    def _slot_of(self, key: str, attempt: int) -> int | None:
        """Return the slot that runs this attempt; None if the slot runs something else by now."""
        job = self._open.get(key)
        if job is None or job.attempt != attempt:
            return None
        return next((index for index, slot in enumerate(self._slots) if slot.job == key), None)

    def _record(self, key: str, result: Answer | Lost) -> Record:
        assert key in self._open, f"job {key} has its result already"
        job = self._open.pop(key)
        return Record(key, job.attempt, result, tuple(reason for _, reason in job.lost))

    def _assign(self) -> list[Instruction]:
        """Give each idle worker the first job that may run on it."""
        dispatched: list[Instruction] = []
        for index, slot in enumerate(self._slots):
            if slot.retired or not slot.ready or slot.job is not None:
                continue
            key = next((key for key in self._queue if self._may_run(key, index)), None)
            if key is not None:
                assert key not in self.in_flight.values(), f"job {key} runs and waits"
                self._queue.remove(key)
                self._open[key].attempt += 1
                slot.job = key
                dispatched.append(Dispatch(index, slot.worker, key, self._open[key].attempt))
        return dispatched

    def _may_run(self, key: str, index: int) -> bool:
        """Whether a job may run on a slot.

        The slot neither lost the job nor is to be avoided, or no better slot is left.
        """
        job = self._open[key]
        lost_on = {slot for slot, _ in job.lost} | ({job.avoid} if job.avoid is not None else set())
        if not lost_on:
            return True
        fresh = [slot for slot in range(len(self._slots)) if slot not in lost_on and not self._slots[slot].retired]
        return index in fresh or not fresh


def _quarantine_reason(lost: list[tuple[int, str]]) -> str:
    """Return a text on a job's lost attempts, without slot numbers, which vary with timing."""
    reasons = list(dict.fromkeys(reason for _, reason in lost))
    attempts = "1 attempt was" if len(lost) == 1 else f"{len(lost)} attempts were"
    return f"{attempts} lost: {'; '.join(reasons)}"
