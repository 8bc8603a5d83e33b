"""The coordinator gives one result per job, and the same one for every order of events."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.dispatch.coordinator import (
    IDLE_LOSSES_MAX,
    LOSSES_MAX,
    AttemptRaised,
    Coordinator,
    Dispatch,
    Event,
    Instruction,
    JobAdded,
    NoteLate,
    NoteLoss,
    Record,
    Replace,
    ResultArrived,
    WorkerLost,
    WorkerReady,
)
from cluster.dispatch.job import Answer
from tests.cluster.fake_judge import FakeJudge, trace
from workers.record.verdict import Lost

JUDGEMENT = FakeJudge().judge(trace("agree"), True)
LOST = f"{LOSSES_MAX} attempts were lost: its process died"


@dataclass
class SimulatedPool:
    """Pool with simulated workers: a list of numbers encodes their events.

    A worker that begins a job named "kill..." dies each time; no other job kills a worker.
    """

    num_slots: int
    worker: list[int] = field(default_factory=list)
    running: dict[int, Dispatch] = field(default_factory=dict)
    starting: list[int] = field(default_factory=list)
    given_up: list[Dispatch] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    lost_on: dict[str, set[int]] = field(default_factory=dict)
    idle_losses: Counter[int] = field(default_factory=Counter)
    retired: set[int] = field(default_factory=set)
    notes: int = 0
    late: int = 0

    def __post_init__(self) -> None:
        self.worker = [0] * self.num_slots
        self.starting = list(range(self.num_slots))

    def carry_out(self, instructions: list[Instruction]) -> None:
        """Check and carry out the coordinator's instructions."""
        for instruction in instructions:
            match instruction:
                case Dispatch(slot=slot, worker=worker):
                    assert slot not in self.running, "two jobs in flight in one slot"
                    assert slot not in self.starting, "a job for a worker that is not ready"
                    assert worker == self.worker[slot]
                    tried = self.lost_on.get(instruction.job, set())
                    fresh = set(range(self.num_slots)) - tried - self.retired
                    assert slot in fresh or not fresh, "a slot that lost this job before"
                    self.running[slot] = instruction
                case Replace(slot=slot, worker=worker):
                    assert worker == self.worker[slot] + 1
                    assert slot not in self.running
                    assert slot not in self.retired
                    self.worker[slot] = worker
                    self.starting.append(slot)
                case Record():
                    self.records.append(instruction)
                case NoteLoss():
                    self.notes += 1
                case NoteLate():
                    self.late += 1

    def event(self, number: int) -> Event | None:
        """Return the next event that the numbers encode, e.g. a result, a death or a late answer."""
        kind, index = number % 9, number // 9
        if kind == 0 and self.given_up:
            late = self.given_up[index % len(self.given_up)]
            return ResultArrived(late.job, late.attempt, JUDGEMENT)
        if kind == 1 and self.given_up:
            old = self.given_up[index % len(self.given_up)]
            return WorkerLost(old.slot, old.worker, "its process died", had_begun=True)
        if self.starting and (kind < 5 or kind == 8 or not self.running):
            slot = self.starting.pop(index % len(self.starting))
            return self._lost(slot, None, had_begun=False) if kind == 8 else WorkerReady(slot, self.worker[slot])
        if not self.running:
            return None
        slot = sorted(self.running)[index % len(self.running)]
        run = self.running.pop(slot)
        kills = run.job.startswith("kill")
        if kind == 6 or kills:
            return self._lost(slot, run, had_begun=kind != 6)
        if kind == 7 and not run.job.startswith("safe"):
            return self._lost(slot, run, had_begun=True)
        self.idle_losses[slot] = 0
        return ResultArrived(run.job, run.attempt, JUDGEMENT)

    def _lost(self, slot: int, run: Dispatch | None, had_begun: bool) -> WorkerLost:
        """Return the loss of a worker that is starting or runs a job."""
        if run is not None:
            self.given_up.append(run)
        if run is not None and had_begun:
            self.losses[run.job] += 1
            self.lost_on.setdefault(run.job, set()).add(slot)
        self.idle_losses[slot] = 0 if had_begun else self.idle_losses[slot] + 1
        if self.idle_losses[slot] == IDLE_LOSSES_MAX:
            self.retired.add(slot)
        return WorkerLost(slot, self.worker[slot], "its process died", had_begun)


def run_to_the_end(slots: int, jobs: list[str], numbers: list[int]) -> tuple[Coordinator, SimulatedPool]:
    """Run jobs under the encoded events, then without losses except for jobs named "kill"."""
    coordinator, pool = Coordinator(slots), SimulatedPool(slots)
    for job in jobs:
        pool.carry_out(coordinator.handle(JobAdded(job)))
    for number in numbers + [2] * (8 * (LOSSES_MAX * len(jobs) + slots + 2)):
        event = pool.event(number)
        if event is not None:
            pool.carry_out(coordinator.handle(event))
    return coordinator, pool


NUMBERS = st.lists(st.integers(0, 1 << 16), max_size=200)


@given(slots=st.integers(1, 4), jobs=st.integers(0, 12), numbers=NUMBERS)
def test_every_job_gets_exactly_one_result_unless_no_slot_has_a_worker(
    slots: int, jobs: int, numbers: list[int]
) -> None:
    names = [f"job {job}" for job in range(jobs)]
    coordinator, pool = run_to_the_end(slots, names, numbers)
    recorded = [record.job for record in pool.records]
    assert len(set(recorded)) == len(recorded)
    assert (coordinator.stranded is not None) == (len(pool.retired) == slots)
    assert coordinator.backlog == jobs - len(recorded)
    if coordinator.stranded is None:
        assert sorted(recorded) == sorted(names)
    for record in pool.records:
        assert isinstance(record.result, Lost) == (pool.losses[record.job] == LOSSES_MAX)


@given(slots=st.integers(1, 4), killers=st.integers(0, 4), safe=st.integers(0, 8), numbers=NUMBERS)
def test_jobs_that_kill_workers_are_lost_and_no_other_job_in_any_order_of_events(
    slots: int, killers: int, safe: int, numbers: list[int]
) -> None:
    names = [f"kill {job}" for job in range(killers)] + [f"safe {job}" for job in range(safe)]
    coordinator, pool = run_to_the_end(slots, names, numbers)
    expected = {name: Lost(reason=LOST) if name.startswith("kill") else JUDGEMENT for name in names}
    found = {record.job: record.result for record in pool.records}
    # The verdict on a job is the same in every order; it is missing only where every slot is retired.
    assert found == {name: expected[name] for name in found}
    assert len(found) == len(names) or coordinator.stranded is not None


@given(numbers=st.lists(st.integers(0, 1 << 16), max_size=60))
def test_the_same_events_give_the_same_instructions(numbers: list[int]) -> None:
    def instructions() -> list[Instruction]:
        coordinator, pool = Coordinator(2), SimulatedPool(2)
        given_out = [each for job in range(4) for each in coordinator.handle(JobAdded(f"job {job}"))]
        pool.carry_out(given_out)
        for number in numbers:
            event = pool.event(number)
            if event is not None:
                step = coordinator.handle(event)
                pool.carry_out(step)
                given_out += step
        return given_out

    assert instructions() == instructions()


def ready(num_slots: int) -> Coordinator:
    """Return a coordinator with idle workers only."""
    coordinator = Coordinator(num_slots)
    for slot in range(num_slots):
        assert coordinator.handle(WorkerReady(slot, 0)) == []
    return coordinator


def test_a_lost_attempt_goes_to_another_slot_before_any_other_job() -> None:
    coordinator = ready(2)
    assert coordinator.handle(JobAdded("a")) == [Dispatch(0, 0, "a", 1)]
    assert coordinator.handle(JobAdded("b")) == [Dispatch(1, 0, "b", 1)]
    coordinator.handle(JobAdded("c"))
    coordinator.handle(JobAdded("d"))
    lost = coordinator.handle(WorkerLost(0, 0, "its process died", had_begun=True))
    assert lost == [NoteLoss("a", 1, "its process died"), Replace(0, 1)]
    assert coordinator.handle(WorkerReady(0, 1)) == [Dispatch(0, 1, "c", 1)]
    assert coordinator.handle(ResultArrived("b", 1, JUDGEMENT)) == [Record("b", 1, JUDGEMENT), Dispatch(1, 0, "a", 2)]


def test_a_late_result_is_noted_and_not_recorded() -> None:
    coordinator = ready(2)
    coordinator.handle(JobAdded("a"))
    coordinator.handle(WorkerLost(0, 0, "its node died", had_begun=True))
    assert coordinator.handle(ResultArrived("a", 1, JUDGEMENT)) == [NoteLate("a", 1, JUDGEMENT)]
    assert coordinator.handle(ResultArrived("a", 2, JUDGEMENT)) == [
        Record("a", 2, JUDGEMENT, deaths=("its node died",))
    ]
    assert coordinator.handle(ResultArrived("a", 2, JUDGEMENT)) == [NoteLate("a", 2, JUDGEMENT)]


def test_job_that_kills_three_workers_is_lost_whichever_slots_ran_it() -> None:
    coordinator, worker = ready(2), [0, 0]
    instructions = coordinator.handle(JobAdded("a"))
    results: list[Answer | Lost] = []
    for _ in range(LOSSES_MAX):
        dispatch = next(each for each in instructions if isinstance(each, Dispatch))
        after = coordinator.handle(WorkerLost(dispatch.slot, worker[dispatch.slot], "its process died", had_begun=True))
        results += [each.result for each in after if isinstance(each, Record)]
        worker[dispatch.slot] += 1
        instructions = after + coordinator.handle(WorkerReady(dispatch.slot, worker[dispatch.slot]))
    assert results == [Lost(reason=LOST)]
    assert not coordinator.backlog


def test_a_worker_whose_own_code_raised_is_replaced_and_its_job_lost_at_once() -> None:
    coordinator = ready(1)
    coordinator.handle(JobAdded("a"))
    coordinator.handle(JobAdded("b"))
    raised = coordinator.handle(AttemptRaised("a", 1, "the worker raised ValueError"))
    assert raised == [Record("a", 1, Lost(reason="the worker raised ValueError")), Replace(0, 1)]
    assert coordinator.handle(WorkerReady(0, 1)) == [Dispatch(0, 1, "b", 1)]


def test_a_worker_that_was_replaced_before_it_was_ready_gets_no_job() -> None:
    coordinator = Coordinator(1)
    coordinator.handle(JobAdded("a"))
    assert coordinator.handle(WorkerLost(0, 0, "too slow", had_begun=False)) == [Replace(0, 1)]
    assert coordinator.handle(WorkerReady(0, 0)) == []
    assert coordinator.handle(WorkerReady(0, 1)) == [Dispatch(0, 1, "a", 1)]


def retire(coordinator: Coordinator, slot: int) -> None:
    """Let the first workers of a slot die at start, until the coordinator retires the slot."""
    for worker in range(IDLE_LOSSES_MAX):
        coordinator.handle(WorkerLost(slot, worker, "no such engine", had_begun=False))


def test_a_job_goes_back_to_the_slot_that_lost_it_when_no_other_is_left() -> None:
    coordinator = ready(2)
    coordinator.handle(JobAdded("a"))
    retire(coordinator, 1)
    coordinator.handle(WorkerLost(0, 0, "its process died", had_begun=True))
    assert coordinator.handle(WorkerReady(0, 1)) == [Dispatch(0, 1, "a", 2)]


def test_a_slot_is_given_up_only_for_losses_without_a_result_between_them() -> None:
    coordinator, worker = ready(1), 0
    for job in range(4):
        dispatch = coordinator.handle(JobAdded(f"job {job}"))
        for attempt in range(1, IDLE_LOSSES_MAX):
            assert dispatch == [Dispatch(0, worker, f"job {job}", attempt)]
            lost = coordinator.handle(WorkerLost(0, worker, "its process died", had_begun=False))
            worker += 1
            assert lost[1:] == [Replace(0, worker)]
            dispatch = coordinator.handle(WorkerReady(0, worker))
        coordinator.handle(ResultArrived(f"job {job}", IDLE_LOSSES_MAX, JUDGEMENT))
    assert not coordinator.backlog


def test_job_stays_open_when_no_slot_ever_started_a_worker() -> None:
    coordinator = Coordinator(2)
    coordinator.handle(JobAdded("a"))
    for slot in range(2):
        assert coordinator.stranded is None
        retire(coordinator, slot)
    assert coordinator.stranded == "no worker could be started: no such engine"
    assert coordinator.handle(JobAdded("b")) == []
    assert coordinator.backlog == 2


def test_job_stays_open_when_every_slot_stops_starting_workers() -> None:
    coordinator = ready(1)
    coordinator.handle(JobAdded("a"))
    retire(coordinator, 0)
    assert coordinator.stranded == "no worker could be started again: no such engine"
    assert coordinator.backlog == 1


@pytest.mark.parametrize("failed_starts", list(product(range(IDLE_LOSSES_MAX), repeat=LOSSES_MAX)))
def test_failed_starts_between_the_deaths_of_a_job_do_not_change_its_verdict(failed_starts: tuple[int, ...]) -> None:
    coordinator, worker = ready(1), 0
    coordinator.handle(JobAdded("a"))
    coordinator.handle(JobAdded("b"))
    recorded: list[Instruction] = []
    for number in failed_starts:
        instructions = coordinator.handle(WorkerLost(0, worker, "its process died", had_begun=True))
        recorded += [each for each in instructions if isinstance(each, Record)]
        for _ in range(number):
            worker += 1
            coordinator.handle(WorkerLost(0, worker, "its process died", had_begun=False))
        worker += 1
        instructions = coordinator.handle(WorkerReady(0, worker))
    deaths = ("its process died",) * LOSSES_MAX
    assert recorded == [Record("a", LOSSES_MAX, Lost(reason=LOST), deaths)]
    assert instructions == [Dispatch(0, worker, "b", 1)]


def test_a_worker_that_died_idle_does_not_count_against_the_job_it_was_given() -> None:
    coordinator, dispatch = ready(2), Dispatch(0, 0, "a", 1)
    assert coordinator.handle(JobAdded("a")) == [dispatch]
    for attempt, (slot, worker) in enumerate([(0, 0), (1, 0), (0, 1), (1, 1)], start=1):
        after = coordinator.handle(WorkerLost(slot, worker, "its process died", had_begun=False))
        assert after[:2] == [NoteLoss("a", attempt, "its process died"), Replace(slot, worker + 1)]
        coordinator.handle(WorkerReady(slot, worker + 1))
    assert coordinator.handle(ResultArrived("a", 5, JUDGEMENT)) == [Record("a", 5, JUDGEMENT)]


def test_attempts_are_numbered_on_from_an_earlier_run() -> None:
    assert ready(1).handle(JobAdded("a", attempts=4)) == [Dispatch(0, 0, "a", 5)]
