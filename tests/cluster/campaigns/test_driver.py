"""The driver runs a planner's tasks once each, and ends at a stop request."""

from pathlib import Path

import pytest

from cluster.campaigns.driver import drive
from cluster.campaigns.planner import Counts, Task
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.coordinator import Event, Record, WorkerLost
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import AnyJob, Job
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from tests.cluster.fake_judge import FAKE_JUDGE, trace
from workers.record.verdict import Agreed, Judgement, Lost


class Chain:
    """A planner with one job at a time; each job is added when the previous one has its result."""

    def __init__(self, *requests: str) -> None:
        self.left = [Job.of(trace(request), sweep=False) for request in requests]
        self.rooms: list[int] = []
        self.begun: list[tuple[str, int, int]] = []
        self.records: list[Record] = []
        self.out = 0

    def tasks(self, slots: int, room: int) -> list[Task]:
        self.rooms.append(room)
        if self.out or not self.left:
            return []
        self.out = 1
        return [Task(self.left.pop(0))]

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        self.begun.append((job.key, attempt, slot))

    def take(self, record: Record) -> None:
        self.out = 0
        self.records.append(record)

    def is_done(self) -> bool:
        return not (self.out or self.left)

    def counts(self) -> Counts:
        return Counts(len(self.records), None, 0)


class Noting:
    """Progress display that stores its counts, and requests a stop after some results."""

    def __init__(self, stop: Stop, most: int) -> None:
        self.seen: list[int] = []
        self._stop = stop
        self._most = most

    def update(self, counts: Counts) -> None:
        self.seen.append(counts.done)
        if counts.done == self._most:
            self._stop.signum = 2


class Dwindling:
    """A pool with one slot: its worker answers one job and dies with the next; no other starts."""

    slots = 1

    def __init__(self) -> None:
        self._host = InProcessPool(FAKE_JUDGE)
        self._worker, self._answered = 0, 0
        self._events: list[Event] = self._host.wait(0.0)

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        if self._answered:
            self._events.append(WorkerLost(slot, self._worker, "its process died", had_begun=False))
        else:
            self._host.dispatch(slot, job, attempt)
            self._events += self._host.wait(0.0)
            self._answered += 1

    def replace(self, slot: int, worker: int) -> None:
        self._worker = worker
        self._events.append(WorkerLost(slot, worker, "its process died", had_begun=False))

    def wait(self, seconds: float) -> list[Event]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        """Do nothing: no process was started."""


def test_a_campaign_ends_when_no_worker_starts_and_its_results_are_kept(tmp_path: Path) -> None:
    scenarios = [Scenario(each, Job.of(trace(each), sweep=False)) for each in ("agree-1", "agree-2", "agree-3")]
    with Store(tmp_path) as store:
        suite = Suite(scenarios, store)
        with pytest.raises(PoolError, match=r"^no worker could be started again: its process died$"):
            drive(suite, Dwindling(), Stop(), store=store)
        assert [type(verdict) for verdict in suite.verdicts()] == [Agreed, type(None), type(None)]
    with Store(tmp_path) as store:
        suite = Suite(scenarios, store)
        assert suite.kept == 1
        drive(suite, InProcessPool(FAKE_JUDGE), Stop(), store=store)
        assert [type(verdict) for verdict in suite.verdicts()] == [Agreed] * 3


def test_every_task_is_begun_and_answered_once_and_in_turn() -> None:
    planner, stop = Chain("agree", "raise", "diverge"), Stop()
    keys = [job.key for job in planner.left]
    progress = Noting(stop, 99)
    drive(planner, InProcessPool(FAKE_JUDGE), stop, progress)
    assert [record.job for record in planner.records] == [key for key, _, _ in planner.begun] == keys
    assert [type(record.result) for record in planner.records] == [Judgement, Lost, Judgement]
    assert progress.seen[-1] == 3
    assert set(planner.rooms) == {1, 2}, "there is room for what the slots run and for one job at hand"


def test_after_a_stop_nothing_more_is_asked_for() -> None:
    planner, stop = Chain("agree", "agree-2", "agree-3"), Stop()
    drive(planner, InProcessPool(FAKE_JUDGE), stop, Noting(stop, 1))
    assert len(planner.records) == 1
    assert len(planner.left) == 2


def test_attempt_numbers_continue_from_the_store(tmp_path: Path) -> None:
    planner = Chain("agree")
    with Store(tmp_path) as store:
        store.begin_attempt(planner.left[0].key, 4, 0)
        drive(planner, InProcessPool(FAKE_JUDGE), Stop(), store=store)
    assert [(attempt, slot) for _, attempt, slot in planner.begun] == [(5, 0)]
