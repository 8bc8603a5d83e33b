"""Workers that die, hang, raise or never start do not change the results of a campaign."""

import os
import select
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from cluster.campaigns.driver import drive
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.coordinator import IDLE_LOSSES_MAX, Event, WorkerLost
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import AnyJob, Job
from cluster.dispatch.pool import InProcessPool, RayCluster, RayPool, WorkerPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from tests.cluster.fake_judge import FAKE_JUDGE, UNSTARTABLE, trace
from tests.cluster.processes import descendants, listening, resident_bytes
from workers.record.verdict import Agreed, Lost, Verdict

DEADLINE_SECONDS = 300.0
END_SECONDS = 60.0
WORKER_BYTES_MAX = 300 * 1024 * 1024


def campaign_of(pool: WorkerPool, folder: Path, *requests: str, seed: int = 0) -> list[Verdict | None]:
    """Run one scenario per request name; return the verdicts."""
    scenarios = [Scenario(each, Job.of(trace(each, seed), sweep=True)) for each in requests]
    with Store(folder) as store:
        suite = Suite(scenarios, store)
        drive(suite, pool, Stop(), None, store)
        return suite.verdicts()


def test_actors_and_this_process_have_the_same_results(ray_cluster: RayCluster, tmp_path: Path) -> None:
    requests = ("agree", "diverge", "crash", "stuck", "vacuous", "raise")
    with RayPool(ray_cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE) as pool:
        on_ray = campaign_of(pool, tmp_path / "ray", *requests)
    assert on_ray == campaign_of(InProcessPool(FAKE_JUDGE), tmp_path / "here", *requests)


class Killing(RayPool):
    """Pool that kills the worker of its first job while the job runs."""

    killed = 0

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Start the attempt; kill the worker of the first one by SIGKILL."""
        super().dispatch(slot, job, attempt)
        pid = self.pids[slot]
        if not self.killed and pid is not None:
            self.killed = pid
            os.kill(pid, signal.SIGKILL)


def test_a_killed_actor_is_replaced_and_its_job_is_run_again(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with Killing(ray_cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE) as pool:
        verdicts = campaign_of(pool, tmp_path, "slow-1", "slow-2", "slow-3", "slow-4", seed=300)
        assert pool.killed not in pool.pids
    assert [type(verdict) for verdict in verdicts] == [Agreed] * 4
    assert lost_attempts(tmp_path) == [(1, "its process died")]


def lost_attempts(folder: Path) -> list[tuple[int, str]]:
    """Return numbers and reasons of the lost attempts of a finished campaign."""
    with closing(sqlite3.connect(folder / "campaign.sqlite")) as database:
        return database.execute("SELECT attempt, reason FROM attempts WHERE outcome = 'lost'").fetchall()


def test_a_job_that_kills_its_worker_is_lost_after_three_attempts_and_no_other_is(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with RayPool(ray_cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE) as pool:
        verdicts = campaign_of(pool, tmp_path, "agree-1", "die", "agree-2", "agree-3")
    assert verdicts[1] == Lost(reason="3 attempts were lost: its process died")
    assert [type(verdict) for verdict in verdicts] == [Agreed, Lost, Agreed, Agreed]
    # Each death was the job's: a process that ends at once takes no reply with it that would say so.
    assert lost_attempts(tmp_path) == [(attempt, "its process died") for attempt in (1, 2, 3)]
    assert len(list((tmp_path / "running").glob("*.yaml"))) == 1


class Hurried(RayPool):
    """Pool in which the deadline of jobs named "hang" passes as soon as the worker begins them."""

    def wait(self, seconds: float) -> list[Event]:
        """Return the events, including the loss of a worker that runs such a job."""
        for seat in self._seats:
            if seat.has_begun and isinstance(seat.job, Job) and seat.job.trace.events[0] == trace("hang").events[0]:
                assert seat.pid is not None, "a worker that has begun a job has started"
                self.reach(seat.pid)
                seat.deadline = 0.0
        return super().wait(seconds)

    def reach(self, pid: int) -> None:
        """Do something to the worker process of such a job just before its deadline."""


def test_a_job_over_its_deadline_is_killed_and_lost(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with Hurried(ray_cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE) as pool:
        verdicts = campaign_of(pool, tmp_path, "hang", "agree")
    assert verdicts[0] == Lost(reason="3 attempts were lost: it took longer than the deadline of 300 s")
    assert isinstance(verdicts[1], Agreed)
    assert len(lost_attempts(tmp_path)) == 3


class Stopping(Hurried):
    """Pool that stops workers by SIGSTOP; `stopped` has a file descriptor of each process."""

    def __init__(self, cluster: RayCluster) -> None:
        super().__init__(cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE)
        self.stopped: dict[int, int] = {}

    def reach(self, pid: int) -> None:
        """Stop the worker process by SIGSTOP."""
        if pid not in self.stopped:
            self.stopped[pid] = os.pidfd_open(pid)
            os.kill(pid, signal.SIGSTOP)


def test_stopped_worker_ends_at_deadline_and_its_job_runs_again(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with Stopping(ray_cluster) as pool:
        verdicts = campaign_of(pool, tmp_path, "hang", "agree")
    assert verdicts[0] == Lost(reason="3 attempts were lost: it took longer than the deadline of 300 s")
    assert isinstance(verdicts[1], Agreed)
    assert len(pool.stopped) == 3
    for process in pool.stopped.values():
        with os.fdopen(process):
            assert select.select([process], [], [], END_SECONDS)[0], "a stopped worker process did not end"


def test_workers_that_cannot_start_are_given_up_with_the_reason(ray_cluster: RayCluster, tmp_path: Path) -> None:
    said = r"^no worker could be started: it could not start: ImportError: no such engine$"
    with RayPool(ray_cluster, 1, DEADLINE_SECONDS, UNSTARTABLE) as pool, pytest.raises(PoolError, match=said):
        campaign_of(pool, tmp_path, "agree")


class Impatient(RayPool):
    """Pool that waits for two workers to start, and counts all others as overdue."""

    given_up = 0

    def wait(self, seconds: float) -> list[Event]:
        """Wait until two workers have started; then the others are overdue."""
        events: list[Event] = []
        while self.pids.count(None) > self.slots - 2:
            events += super().wait(seconds)
        for seat in self._seats:
            seat.deadline = seat.deadline if seat.pid is not None else 0.0
        events += super().wait(seconds)
        lost = [event for event in events if isinstance(event, WorkerLost)]
        assert all("did not start within" in event.reason and not event.had_begun for event in lost)
        self.given_up += len(lost)
        return events


def test_slots_without_a_cpu_are_given_up_and_the_others_do_the_work(ray_cluster: RayCluster, tmp_path: Path) -> None:
    # A wait ends two of them at most: there are waits enough to give a slot up.
    requests = [f"slow-{index}" for index in range(4 * IDLE_LOSSES_MAX)]
    with Impatient(ray_cluster, 3, DEADLINE_SECONDS, FAKE_JUDGE, start_seconds=DEADLINE_SECONDS) as pool:
        verdicts = campaign_of(pool, tmp_path, *requests, seed=100)
        assert None in pool.pids
        assert pool.given_up == IDLE_LOSSES_MAX
    assert [type(verdict) for verdict in verdicts] == [Agreed] * len(requests)


class Counting(RayPool):
    """Pool that records its workers' memory and the interfaces on which they listen."""

    def __init__(self, cluster: RayCluster) -> None:
        super().__init__(cluster, 2, DEADLINE_SECONDS, FAKE_JUDGE)
        self.bytes_max = 0
        self.sockets: dict[str, bool] = {}

    def wait(self, seconds: float) -> list[Event]:
        """Inspect the workers after each wait."""
        events = super().wait(seconds)
        known = [pid for pid in self.pids if pid is not None]
        self.bytes_max = max([self.bytes_max, *map(resident_bytes, known)])
        self.sockets = self.sockets | listening(descendants(os.getpid()) | {os.getpid()})
        return events


def test_workers_are_small_and_every_socket_is_on_loopback(ray_cluster: RayCluster, tmp_path: Path) -> None:
    with Counting(ray_cluster) as pool:
        campaign_of(pool, tmp_path, "slow-1", "slow-2", seed=100)
    assert 0 < pool.bytes_max < WORKER_BYTES_MAX
    assert len(pool.sockets) >= 4, "a Ray without sockets was looked at"
    assert [name for name, loopback in pool.sockets.items() if not loopback] == []


def test_the_token_of_a_private_ray_is_readable_by_its_owner_only(ray_cluster: RayCluster) -> None:
    assert os.environ["RAY_AUTH_MODE"] == "token"
    default = Path.home() / ".ray" / "auth_token"
    token = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", default))
    if token != default:
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
