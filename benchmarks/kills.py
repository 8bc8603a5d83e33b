"""Kill workers with SIGKILL at random moments of a hunt: nothing that ran is lost, and no finding is lost or doubled.

`python -m benchmarks.kills --kills 200`. After each kill the trace that was running has to be on the disk and be one of
its shard's; at the end the hunt must have come to the same, byte for byte, as one that nobody disturbed. Exit code 1
if not.
"""

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from random import Random

from cluster.campaign import Stop
from cluster.coordinator import Event, ResultArrived, WorkerLost
from cluster.host import running_file
from cluster.hunt import Hunt
from cluster.hunt_report import as_json, hunt_document
from cluster.hunter import Hunter, Plan
from cluster.job import AnyJob, ShardJob
from cluster.pool import Pool, RayCluster, RayPool
from cluster.store import Store
from scenarios import codec
from workers.hunting import shard_traces
from workers.worker import Worker

FAULT = "vllm-38556-accepted-counts"
WORKERS = 2


@dataclass(slots=True)
class Kills:
    """What killing showed: `kept` traces on the disk, `before` kills before a first trace, `wrong` what was lost."""

    wanted: int
    kept: int = 0
    before: int = 0
    replayed: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Return the number of kills."""
        return self.kept + self.before + len(self.wrong)


class KillingPool(RayPool):
    """Kills a worker that runs a shard at a random moment, and looks at what it left behind.

    No job loses a third worker: that would be the job's own verdict.
    """

    def __init__(self, cluster: RayCluster, kills: Kills, seed: int) -> None:
        super().__init__(cluster, WORKERS, 120.0)
        self.kills = kills
        self._random = Random(seed)
        self._running: dict[int, ShardJob] = {}
        self._judge = Worker()
        self._killed: Counter[str] = Counter()

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Remember which shard each slot runs."""
        if isinstance(job, ShardJob):
            self._running[slot] = job
        super().dispatch(slot, job, attempt)

    def wait(self, seconds: float) -> list[Event]:
        """Wait for a random part of a shard, then perhaps kill a worker; report what happened."""
        events = super().wait(self._random.random() * 0.5)
        for event in events:
            if isinstance(event, ResultArrived):
                self._running = {slot: job for slot, job in self._running.items() if job.key != event.job}
            elif isinstance(event, WorkerLost):
                self._running.pop(event.slot, None)
        slot = self._random.randrange(self.slots)
        job, pid = self._running.get(slot), self.pids[slot]
        if events or job is None or pid is None or self._killed[job.key] == 2:
            return events
        if self.kills.made < self.kills.wanted:
            self._killed[job.key] += 1
            os.kill(pid, signal.SIGKILL)
            del self._running[slot]
            self._look(job)
        return events

    def _look(self, job: ShardJob) -> None:
        file = running_file(Path(job.running), job.key)
        if not file.exists():
            self.kills.before += 1
            return
        left = codec.load(file)
        if left not in shard_traces(job.shard):
            self.kills.wrong.append(f"{file.name} is none of its shard's traces")
            return
        self.kills.kept += 1
        if self.kills.kept % 10 == 1:
            again = self._judge.judge(left, False)
            self.kills.replayed += again.verdict.kind in ("agreed", "diverged", "vacuous")


class _Quiet:
    """Shows nothing."""

    def update(self, hunter: Hunter) -> None:
        """Do nothing."""


def outcome(folder: Path, pool: Pool, num_traces: int) -> str:
    """Hunt with a fault on, and return the report as JSON."""
    with Store(folder) as store:
        hunt = Hunt(Plan(faults=(FAULT,)), store, num_traces)
        hunt.run(pool, _Quiet(), Stop(), lambda: True)
        return as_json(hunt_document(hunt.hunter, hunt.exit_code()))


def compare(cluster: RayCluster, folder: Path, kills: Kills, num_traces: int, seed: int) -> list[str]:
    """Hunt undisturbed and under fire; return what is wrong."""
    with RayPool(cluster, WORKERS, 120.0) as pool:
        calm = outcome(folder / "calm", pool, num_traces)
    with KillingPool(cluster, kills, seed) as killing:
        disturbed = outcome(folder / "killed", killing, num_traces)
    wrong = list(kills.wrong)
    if disturbed != calm:
        lines = unified_diff(calm.splitlines(), disturbed.splitlines(), "undisturbed", "killed", lineterm="", n=0)
        wrong.append("the hunt came to something else than undisturbed:\n" + "\n".join(lines))
    if kills.made < kills.wanted:
        wrong.append(f"only {kills.made} workers were killed; give more --traces")
    names = [sorted(path.name for path in (folder / one / "artefacts").iterdir()) for one in ("calm", "killed")]
    if names[0] != names[1]:
        wrong.append(f"artefacts are {names[1]}, undisturbed {names[0]}")
    left = [path.name for path in (folder / "killed" / "running").iterdir()]
    return [*wrong, *(f"running/{name} was left behind" for name in left)]


def main() -> int:
    """Kill, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="workers to kill (default 200)")
    parser.add_argument("--traces", type=int, help="traces to hunt through (default: 8 a kill)")
    parser.add_argument("--seed", type=int, default=0, help="which moments (default 0)")
    arguments = parser.parse_args()
    kills = Kills(arguments.kills)
    num_traces = arguments.traces or 8 * arguments.kills
    with tempfile.TemporaryDirectory() as folder, RayCluster("local", WORKERS) as cluster:
        wrong = compare(cluster, Path(folder), kills, num_traces, arguments.seed)
    print(
        f"{kills.made} workers killed during {num_traces} traces: {kills.kept} left the trace they ran, "
        f"{kills.before} had not begun one; {kills.replayed} of the traces left were replayed"
    )
    print("\n".join(wrong) or "nothing was lost or doubled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
