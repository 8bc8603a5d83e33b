"""Run campaigns with a job that kills its worker: only this job may be lost.

`python -m benchmarks.robustness.killing_jobs --runs 200 --busy 4`. Each campaign has one job that ends its worker's
process within microseconds and three jobs that agree, on two actors. The verdicts and the number of attempts must be
the same in each run, regardless of load: the killing job is lost after three attempts, and the others agree. Exit code
1 if any campaign differs.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from cluster.campaigns.driver import drive
from cluster.campaigns.suite import Scenario, Suite
from cluster.dispatch.coordinator import LOSSES_MAX, Event, WorkerLost
from cluster.dispatch.host import PoolError
from cluster.dispatch.job import Job
from cluster.dispatch.pool import RayCluster, RayPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from tests.cluster.fake_judge import FAKE_JUDGE, trace
from workers.record.verdict import Lost

KILLER, OTHERS = "die", ("agree-1", "agree-2", "agree-3")
NAMES = (OTHERS[0], KILLER, *OTHERS[1:])
WORKERS = 2
DEADLINE_SECONDS = 600.0
LOST = Lost(reason=f"{LOSSES_MAX} attempts were lost: its process died")


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of a campaign: worker deaths during and before a job, and what is wrong, or ""."""

    deaths: int
    failed_starts: int
    wrong: str


class CountingPool(RayPool):
    """A worker pool that counts lost workers, with and without a begun job."""

    def __init__(self, cluster: RayCluster) -> None:
        super().__init__(cluster, WORKERS, DEADLINE_SECONDS, FAKE_JUDGE, start_seconds=DEADLINE_SECONDS)
        self.losses: Counter[bool] = Counter()

    def wait(self, seconds: float) -> list[Event]:
        """Return the pool's events, and count the lost workers among them."""
        events = super().wait(seconds)
        self.losses.update(event.had_begun for event in events if isinstance(event, WorkerLost))
        return events


def campaign(cluster: RayCluster, folder: Path) -> Run:
    """Run the jobs once and compare their verdicts with the expected ones."""
    scenarios = [Scenario(name, Job.of(trace(name), sweep=False)) for name in NAMES]
    wrong = ""
    # Ray prints a paragraph on stdout for each worker that dies.
    with (
        open(os.devnull, "w") as nowhere,
        redirect_stdout(nowhere),
        CountingPool(cluster) as pool,
        Store(folder) as store,
    ):
        suite = Suite(scenarios, store)
        try:
            drive(suite, pool, Stop(), store=store)
        except PoolError as error:
            wrong = f"ended early: {error}"
        for name, verdict in zip(NAMES, suite.verdicts(), strict=True):
            is_right = verdict == LOST if name == KILLER else verdict is not None and verdict.kind == "agreed"
            if not is_right and not wrong:
                wrong = f"{name}: {verdict}"
    if pool.losses[True] != LOSSES_MAX and not wrong:
        wrong = f"{pool.losses[True]} workers died with a job, expected {LOSSES_MAX}"
    return Run(pool.losses[True], pool.losses[False], wrong)


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep some processors busy with looping processes, for a `with` block."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.send_signal(signal.SIGKILL)
            loop.wait()


def main() -> int:
    """Run the campaigns and print the numbers of lost workers; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="campaigns (default 200)")
    parser.add_argument("--busy", type=int, default=4, help="looping processes (default 4)")
    arguments = parser.parse_args()
    # Ray starts its workers with niceness 15; looping processes would leave them no CPU time.
    os.environ.setdefault("RAY_worker_niceness", "0")
    runs: list[Run] = []
    loads: list[float] = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, RayCluster("local", WORKERS) as cluster, busy(arguments.busy):
        for number in range(arguments.runs):
            runs.append(campaign(cluster, Path(folder, str(number))))
            loads.append(os.getloadavg()[0])
            if runs[-1].wrong:
                print(f"campaign {number}: {runs[-1].wrong}", flush=True)
            elif (number + 1) % 20 == 0:
                print(f"{number + 1} campaigns", flush=True)
    wrong = sum(bool(run.wrong) for run in runs)
    deaths, failed_starts = sum(run.deaths for run in runs), sum(run.failed_starts for run in runs)
    print(
        f"{len(runs)} campaigns in {time.monotonic() - begun:.0f} s, load {min(loads):.1f} to {max(loads):.1f}: "
        f"{len(runs) - wrong} as expected ({LOSSES_MAX} attempts of {KILLER} lost, {len(OTHERS)} other jobs agreed); "
        f"{deaths} workers died with a job, {failed_starts} before one"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
