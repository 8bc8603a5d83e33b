"""Kill workers with SIGKILL at random moments of a hunt; no trace or finding may be lost.

`python -m benchmarks.robustness.kills --kills 200`. After each kill the running trace must be on disk, be a trace of
its shard, and run again; at the end the hunt's report and artefacts must equal, byte for byte, those of an undisturbed
hunt. Candidates of the shrinker are not on disk, but their finding is. Exit code 1 if any check fails.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from random import Random

from cluster.campaigns.driver import drive
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.dispatch.coordinator import Event, ResultArrived, WorkerLost
from cluster.dispatch.host import running_file
from cluster.dispatch.job import AnyJob, ShardJob
from cluster.dispatch.pool import RayCluster, RayPool, WorkerPool
from cluster.dispatch.session import Stop
from cluster.reports.hunt_report import hunt_document
from cluster.storage.store import Store
from scenarios import codec
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.run.check import check
from workers.run.shard import shard_traces

FAULT = "vllm-38556-accepted-counts"
WORKERS = 2
DEADLINE_SECONDS = 120.0


@dataclass(slots=True)
class Kills:
    """Numbers of killed workers: with a stored trace (`kept`), without one (`before`).

    `others` hit a job without a shard, which explained, shrank or confirmed a finding. `wrong` lists what was lost.
    """

    wanted: int
    kept: int = 0
    before: int = 0
    others: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Return the number of kills."""
        return self.kept + self.before + self.others + len(self.wrong)


class KillingPool(RayPool):
    """A worker pool that kills workers at random moments, and checks the files they left.

    A job never loses enough workers for the verdict "lost": at most `losses` without a shard, and two with one.
    """

    def __init__(
        self, cluster: RayCluster, workers: int, kills: Kills, seed: int, losses: int = 1, seconds: float = 0.5
    ) -> None:
        super().__init__(cluster, workers, DEADLINE_SECONDS)
        self._kills, self._losses, self._seconds = kills, losses, seconds
        self._random = Random(seed)
        self._running: dict[int, AnyJob] = {}
        self._value_cache = ModelValueCache()
        self._killed: Counter[str] = Counter()

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Start a job on a slot, and remember it for later kills."""
        self._running[slot] = job
        super().dispatch(slot, job, attempt)

    def wait(self, seconds: float) -> list[Event]:
        """Wait for a random time, then perhaps kill a worker; return the events."""
        before = dict(self._running)
        events = super().wait(self._random.random() * self._seconds)
        for event in events:
            if isinstance(event, ResultArrived):
                self._running = {slot: job for slot, job in self._running.items() if job.key != event.job}
            elif isinstance(event, WorkerLost):
                self._running.pop(event.slot, None)
        slot = self._random.randrange(self.slots)
        job, pid = self._running.get(slot), self.pids[slot]
        if job is None or job is not before.get(slot) or pid is None:
            return events
        if self._killed[job.key] == (2 if isinstance(job, ShardJob) else self._losses):
            return events
        if self._kills.made < self._kills.wanted and not self._waits_for_a_trace(job):
            self._killed[job.key] += 1
            os.kill(pid, signal.SIGKILL)
            # Until this worker is replaced it is dead, and a second kill would not count.
            del self._running[slot]
            if isinstance(job, ShardJob):
                self._look(job)
            else:
                self._kills.others += 1
        return events

    def _waits_for_a_trace(self, job: AnyJob) -> bool:
        """Return whether to skip a kill: no killed worker would have had a running trace."""
        is_idle = isinstance(job, ShardJob) and not running_file(Path(job.running), job.key).exists()
        return is_idle and self._kills.before + 1 >= self._kills.wanted

    def _look(self, job: ShardJob) -> None:
        file = running_file(Path(job.running), job.key)
        if not file.exists():
            self._kills.before += 1
            return
        left = codec.load(file)
        if left not in shard_traces(job.shard):
            self._kills.wrong.append(f"{file.name} is not a trace of its shard")
        elif (kind := check(left.explicit(), self._value_cache).kind) not in ("agreed", "diverged", "vacuous"):
            self._kills.wrong.append(f"{file.name} ended with verdict {kind} when it was run again")
        else:
            self._kills.kept += 1


def outcome(folder: Path, pool: WorkerPool, num_traces: int, faults: tuple[str, ...]) -> str:
    """Run a hunt with faults on, and return its report as JSON."""
    with Store(folder) as store:
        planner = HuntPlanner(HuntSettings(faults=faults), store, num_traces)
        drive(planner, pool, Stop(), None, store)
        return hunt_document(planner.hunt, planner.exit_code()).model_dump_json(indent=2)


def compare(
    cluster: RayCluster,
    folder: Path,
    kills: Kills,
    num_traces: int,
    seed: int,
    faults: tuple[str, ...] = (FAULT,),
    workers: int = WORKERS,
) -> list[str]:
    """Run a hunt with and without kills; return the differences of the reports."""
    with RayPool(cluster, workers, DEADLINE_SECONDS) as pool:
        calm = outcome(folder / "calm", pool, num_traces, faults)
    with KillingPool(cluster, workers, kills, seed) as killing:
        disturbed = outcome(folder / "killed", killing, num_traces, faults)
    wrong = list(kills.wrong)
    if disturbed != calm:
        lines = unified_diff(calm.splitlines(), disturbed.splitlines(), "undisturbed", "killed", lineterm="", n=0)
        wrong.append("the hunt's report differs from the undisturbed one:\n" + "\n".join(lines))
    if kills.made < kills.wanted:
        wrong.append(f"only {kills.made} workers were killed; give more --traces")
    written = [
        {path.name: path.read_bytes() for path in (folder / one / "artefacts").iterdir()} for one in ("calm", "killed")
    ]
    differ = sorted(name for name in written[0] | written[1] if written[0].get(name) != written[1].get(name))
    wrong += [f"artefacts/{name} differs" for name in differ]
    left = [path.name for path in (folder / "killed" / "running").iterdir()]
    return [*wrong, *(f"running/{name} was not removed" for name in left)]


def main() -> int:
    """Kill workers of a hunt, compare its report, print failures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="workers to kill (default 200)")
    parser.add_argument("--traces", type=int, help="traces of the hunt (default: 8 for each kill)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills (default 0)")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"concurrent workers (default {WORKERS})")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help=f"default {FAULT}")
    arguments = parser.parse_args()
    kills, begin = Kills(arguments.kills), time.monotonic()
    num_traces = arguments.traces or 8 * arguments.kills
    faults = tuple(arguments.fault or (FAULT,))
    with tempfile.TemporaryDirectory() as folder, RayCluster("local", arguments.workers) as cluster:
        wrong = compare(cluster, Path(folder), kills, num_traces, arguments.seed, faults, arguments.workers)
    print(
        f"{kills.made} workers killed during {num_traces} traces, {time.monotonic() - begin:.0f} s: {kills.kept} left "
        f"their trace, which ran again; {kills.before} had no trace; {kills.others} were processing a finding"
    )
    print("\n".join(wrong) or "no trace or finding was lost or doubled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
