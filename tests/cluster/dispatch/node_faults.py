"""Program: run campaigns on a cluster of three raylets, and kill parts of it meanwhile.

Run by `test_nodes.py` in a process of its own, since a process has one Ray. The head has no CPU; of the other nodes one
declares a GPU, and has a label that marks it as fake.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from cluster.campaigns.driver import drive
from cluster.campaigns.planner import Counts
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import Job
from cluster.dispatch.pool import RayCluster, RayPool
from cluster.dispatch.session import Stop
from cluster.storage.campaign import Campaign
from cluster.storage.store import Store
from tests.cluster.fake_judge import FAKE_JUDGE, trace
from tests.cluster.processes import descendants

# Slow enough that both nodes have a worker before all are done, on a busy machine too.
SLOW_MS = 500
NUM_JOBS = 32
SECONDS_MAX = 180.0
NUM_SMOKE = 6


class Killing:
    """Progress display that kills the head's dashboard, and later a node, during a campaign."""

    def __init__(self, cluster: Any, node: Any, pool: RayPool) -> None:
        self.killed: list[str] = []
        self._pool = pool
        self._cluster = cluster
        self._node = node

    def update(self, counts: Counts) -> None:
        """Kill the next process once enough results have arrived."""
        if counts.done >= 2 and not self.killed:
            for process in self._cluster.head_node.all_processes["dashboard"]:
                os.kill(process.process.pid, signal.SIGKILL)
            self.killed.append("dashboard")
        # By then each of the two nodes has a worker, and that is at work.
        if len(self.killed) == 1 and None not in self._pool.pids and counts.done >= 5:
            self._cluster.remove_node(self._node, allow_graceful=False)
            self.killed.append("node")


def pids_below(node: Any) -> set[int]:
    """Return the process ids of a node's raylet and its descendants."""
    return descendants(node.all_processes["raylet"][0].process.pid)


def without_a_gpu(ray: RayCluster, folder: Path) -> str:
    """Run a job that needs a GPU on a cluster without one; return why the campaign ended."""
    job = Job.of(trace("agree"), sweep=True)
    with RayPool(ray, 1, SECONDS_MAX, FAKE_JUDGE, gpus=1, start_seconds=1.0) as pool, Store(folder) as store:
        try:
            drive(Suite([Scenario("gpu", job)], store), pool, Stop(), store=store)
        except PoolError as error:
            return str(error)
    return ""


def with_a_gpu(ray: RayCluster, node: Any, folder: Path) -> dict[str, Any]:
    """Run a job that needs a GPU; return its verdict, and whether the given node ran it."""
    job = Job.of(trace("agree"), sweep=True)
    with RayPool(ray, 1, SECONDS_MAX, FAKE_JUDGE, gpus=1, start_seconds=SECONDS_MAX) as pool, Store(folder) as store:
        suite = Suite([Scenario("gpu", job)], store)
        before = pids_below(node)
        drive(suite, pool, Stop(), store=store)
        (verdict,) = suite.verdicts()
        on_node = pool.pids[0] in pids_below(node) | before
    assert verdict is not None
    return {"verdict": verdict.kind, "reason": getattr(verdict, "reason", ""), "on_node": on_node}


def killed_parts(ray: RayCluster, cluster: Any, node: Any, folder: Path, port: int) -> dict[str, Any]:
    """Run a campaign while the dashboard and a node are killed; return its outcome."""
    scenarios = [Scenario(f"s{n}", Job.of(trace(f"slow-{n}", SLOW_MS), sweep=True)) for n in range(NUM_JOBS)]
    with RayPool(ray, 2, SECONDS_MAX, FAKE_JUDGE) as pool, Store(folder) as store:
        killing = Killing(cluster, node, pool)
        suite = Suite(scenarios, store)
        drive(suite, pool, Stop(), killing, store)
        losses = dict(store.losses(store.run.run))
        kinds = [verdict.kind for verdict in suite.verdicts() if verdict is not None]
        exported = metrics(port, pool)
    with Campaign(folder) as campaign:
        recorded = len(list(campaign.results()))
    return {"killed": killing.killed, "kinds": kinds, "recorded": recorded, "losses": losses, "metrics": exported}


def killed_driver(address: str, folder: Path) -> dict[str, Any]:
    """Kill a driver that has joined the cluster, then run the same command again."""
    paths = sorted(map(str, Path("scenarios/smoke").glob("*.yaml")))[:NUM_SMOKE]
    command = [sys.executable, "-m", "cluster", "run", *paths, "--ray", address, "--workers", "1", "--out", str(folder)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + SECONDS_MAX
    while first.poll() is None and num_results(folder) < 1 and time.monotonic() < end:
        time.sleep(0.02)
    first.kill()
    first.wait()
    before = num_results(folder)
    second = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    return {"before": before, "code": second.returncode, "out": second.stdout, "err": second.stderr}


def num_results(folder: Path) -> int:
    """Return the number of results of a campaign, which may still run."""
    try:
        database = sqlite3.connect(f"file:{folder / 'campaign.sqlite'}?mode=ro", uri=True)
        with database:
            return int(database.execute("SELECT COUNT(*) FROM results").fetchone()[0])
    except sqlite3.Error:
        return 0


def metrics(port: int, pool: RayPool) -> list[str]:
    """Return the campaign metrics that a node exports, once all of them are reported."""
    end = time.monotonic() + SECONDS_MAX
    while time.monotonic() < end:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = [line for line in answer.read().decode().splitlines() if line.startswith("ray_specstorm")]
        jobs = [float(line.split()[-1]) for line in lines if line.startswith("ray_specstorm_jobs_total")]
        if jobs == [NUM_JOBS + 1] and all(any(name in line for line in lines) for name in ("lost_jobs", "workers")):
            return lines
        pool.wait(0.2)
    return []


def main() -> None:
    """Run all cases and print their outcomes."""
    # Not where tests are collected: Ray reads its authentication mode once in a process.
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    folder = Path(sys.argv[1])
    options = {"num_cpus": 0, "include_dashboard": True, "dashboard_port": 0, "object_store_memory": 80_000_000}
    cluster: Any = Cluster(initialize_head=True, head_node_args=options)
    plain = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster.add_node(**plain)
    with_gpu = cluster.add_node(**plain, num_gpus=1, labels={"accelerator": "none"})
    cluster.wait_for_nodes()
    found: dict[str, Any] = {}
    with RayCluster(cluster.address, None) as ray:
        head = next(node for node in ray.module.nodes() if not node["Resources"].get("CPU"))
        found["gpus"] = ray.num_gpus
        found["gpu"] = with_a_gpu(ray, with_gpu, folder / "gpu")
        found["parts"] = killed_parts(ray, cluster, with_gpu, folder / "parts", head["MetricsExportPort"])
        found["gone"] = without_a_gpu(ray, folder / "gone")
        found["driver"] = killed_driver(cluster.address, folder / "driver")
    cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
