"""Fifty workers are killed with SIGKILL at random moments; nobody can tell from the results."""

import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from random import Random

from cluster.campaign import Campaign, Scenario, Stop
from cluster.coordinator import Event, ResultArrived, WorkerLost
from cluster.job import WORKER, AnyJob, Job
from cluster.pool import Pool, RayCluster, RayPool
from cluster.store import Store
from scenarios.events import AcceptRate, Preempt, PromptDraw, Reorder, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.cluster.test_store import NoProgress

KILLS = 50
KILLS_MID_JOB_MIN = 40
ROWS = "SELECT job, scenario, verdict, digest, artefact, judgement FROM results ORDER BY job"


class Chaos(RayPool):
    """Kills workers at random moments, but no job's worker a third time: that would be the job's own verdict."""

    kills = 0

    def __init__(self, cluster: RayCluster, factory: str, job_seconds: float) -> None:
        super().__init__(cluster, 2, 120.0, factory)
        self._random = Random(20261121)
        self._job_seconds = job_seconds
        self._running: dict[int, str] = {}
        self._killed: Counter[str] = Counter()

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Remember what each slot runs."""
        self._running[slot] = job.key
        super().dispatch(slot, job, attempt)

    def wait(self, seconds: float) -> list[Event]:
        """Wait a random part of a job, then perhaps kill a worker; report what happened."""
        events = super().wait(self._random.random() * self._job_seconds)
        for event in events:
            if isinstance(event, ResultArrived):
                self._running = {slot: job for slot, job in self._running.items() if job != event.job}
            elif isinstance(event, WorkerLost):
                self._running.pop(event.slot, None)
        slot = self._random.randrange(self.slots)
        job, pid = self._running.get(slot), self.pids[slot]
        if not events and job is not None and pid is not None and self.kills < KILLS and self._killed[job] < 2:
            self.kills += 1
            self._killed[job] += 1
            # Until it is replaced this worker is dead, and a second kill would count for nothing.
            del self._running[slot]
            os.kill(pid, signal.SIGKILL)
        return events


def rows(folder: Path, scenarios: list[Scenario], pool: Pool) -> list[tuple[object, ...]]:
    """Run a campaign and return its results."""
    with Store(folder) as store:
        Campaign(scenarios, store).run(pool, NoProgress(), Stop())
    return query(folder, ROWS)


def query(folder: Path, text: str) -> list[tuple[object, ...]]:
    """Return the rows of a query on a closed campaign."""
    database = sqlite3.connect(folder / "campaign.sqlite")
    try:
        return database.execute(text).fetchall()
    finally:
        database.close()


def check_fifty_kills(
    cluster: RayCluster, folder: Path, scenarios: list[Scenario], factory: str, seconds: float
) -> None:
    """Run scenarios undisturbed and under fire, and compare the results row by row."""
    with RayPool(cluster, 2, 120.0, factory) as pool:
        calm = rows(folder / "calm", scenarios, pool)
    with Chaos(cluster, factory, seconds) as chaos:
        disturbed = rows(folder / "chaos", scenarios, chaos)
    assert chaos.kills == KILLS
    (mid_job,) = query(folder / "chaos", "SELECT COUNT(*) FROM attempts WHERE outcome = 'lost: its process died'")[0]
    assert isinstance(mid_job, int)
    assert KILLS_MID_JOB_MIN <= mid_job <= KILLS
    assert len(calm) == len(scenarios)
    for before, after in zip(calm, disturbed, strict=True):
        assert before == after
    assert query(folder / "chaos", "SELECT COUNT(*) FROM late") == [(0,)]
    assert list((folder / "chaos" / "running").iterdir()) == []


def engine_trace(seed: int) -> Trace:
    """Return a trace with chunked prefill, a preemption, a reorder and partial accepts; every fifth has a fault."""
    submits = (
        Submit(tick=0, request="r0", prompt=PromptDraw(tokens=11), max_tokens=7, accept=AcceptRate(rate=0.5)),
        Submit(tick=1, request="r1", prompt=PromptDraw(tokens=5), max_tokens=6, accept="alternate"),
    )
    return Trace(
        spec=EngineSpec(max_num_batched_tokens=8, max_num_seqs=3, vocab_size=16),
        seed=seed,
        events=(*submits, Preempt(tick=4, request="r1"), Reorder(tick=6)),
        faults=("vllm-38556-backup-token",) if seed % 5 == 0 else (),
    )


def test_fifty_killed_engines_leave_no_trace_in_the_results(ray_cluster: RayCluster, tmp_path: Path) -> None:
    scenarios = [Scenario(f"seed {seed}", Job.of(engine_trace(seed), sweep=True)) for seed in range(64)]
    check_fifty_kills(ray_cluster, tmp_path, scenarios, WORKER, seconds=0.25)
