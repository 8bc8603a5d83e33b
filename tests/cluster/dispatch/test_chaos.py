"""Workers are killed with SIGKILL at random moments; the results equal a run without kills.

`benchmarks.robustness.kills` kills any number of workers in a hunt.
"""

import sqlite3
from pathlib import Path

from benchmarks.robustness.kills import KillingPool, Kills
from cluster.campaigns.driver import drive
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.job import Job
from cluster.dispatch.pool import RayCluster, RayPool, WorkerPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from scenarios.events import AcceptRate, Preempt, PromptDraw, Reorder, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

KILLS = 5
KILLS_MID_JOB_MIN = 3
ROWS = "SELECT job, scenario, verdict, digest, artefact, judgement FROM results ORDER BY job"


def rows(folder: Path, scenarios: list[Scenario], pool: WorkerPool) -> list[tuple[object, ...]]:
    """Run a campaign and return its results."""
    with Store(folder) as store:
        drive(Suite(scenarios, store), pool, Stop(), None, store)
    return query(folder, ROWS)


def query(folder: Path, text: str) -> list[tuple[object, ...]]:
    """Return the result rows of a query on a finished campaign."""
    database = sqlite3.connect(folder / "campaign.sqlite")
    try:
        return database.execute(text).fetchall()
    finally:
        database.close()


def engine_trace(seed: int) -> Trace:
    """Return a trace with chunked prefill, preemption and reorder; one in five has a fault."""
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


def test_killed_engines_leave_no_trace_in_the_results(ray_cluster: RayCluster, tmp_path: Path) -> None:
    scenarios = [Scenario(f"seed {seed}", Job.of(engine_trace(seed), sweep=True)) for seed in range(7)]
    kills = Kills(KILLS)
    with RayPool(ray_cluster, 2, 120.0) as pool:
        calm = rows(tmp_path / "calm", scenarios, pool)
    with KillingPool(ray_cluster, 2, kills, seed=20261121, losses=2, seconds=0.25) as pool:
        disturbed = rows(tmp_path / "chaos", scenarios, pool)
    assert kills.made == KILLS
    (mid_job,) = query(tmp_path / "chaos", "SELECT COUNT(*) FROM attempts WHERE reason = 'its process died'")[0]
    assert isinstance(mid_job, int)
    assert KILLS_MID_JOB_MIN <= mid_job <= KILLS
    assert len(calm) == len(scenarios)
    for before, after in zip(calm, disturbed, strict=True):
        assert before == after
    assert query(tmp_path / "chaos", "SELECT COUNT(*) FROM late") == [(0,)]
    assert list((tmp_path / "chaos" / "running").iterdir()) == []
