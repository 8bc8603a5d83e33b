"""Kill workers with SIGKILL at random moments of a hunt: nothing that ran is lost, and no finding is lost or doubled.

`python -m benchmarks.robustness.kills --kills 200`. After each kill the trace that was running has to be on the disk,
be one of its shard's, and run again; at the end the hunt must have come to the same, byte for byte, as one that nobody
disturbed: its report and its artefacts. Candidates of the shrinker are not on the disk, but the finding that they
belong to is. Exit code 1 if anything is otherwise.
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
from workers.oracle.tape import Tapes
from workers.run.check import check
from workers.run.shard import shard_traces

FAULT = "vllm-38556-accepted-counts"
WORKERS = 2
DEADLINE_SECONDS = 120.0


@dataclass(slots=True)
class Kills:
    """What killing showed: `kept` traces on the disk that ran again, `before` kills of a worker that ran none of them.

    `others` had no shard: in a hunt they explained, shrank or confirmed a finding. `wrong` is what was lost.
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
    """Kills workers at random moments, every `seconds` at most, and looks at what they left behind.

    No job loses so many that it is given up, that would be the job's own verdict: `losses` are allowed of one without a
    shard, and two of a shard.
    """

    def __init__(
        self, cluster: RayCluster, workers: int, kills: Kills, seed: int, losses: int = 1, seconds: float = 0.5
    ) -> None:
        super().__init__(cluster, workers, DEADLINE_SECONDS)
        self._kills, self._losses, self._seconds = kills, losses, seconds
        self._random = Random(seed)
        self._running: dict[int, AnyJob] = {}
        self._tapes = Tapes()
        self._killed: Counter[str] = Counter()

    def dispatch(self, slot: int, job: AnyJob, attempt: int) -> None:
        """Remember which job each slot runs."""
        self._running[slot] = job
        super().dispatch(slot, job, attempt)

    def wait(self, seconds: float) -> list[Event]:
        """Wait for a random time, then perhaps kill a worker; report what happened."""
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
            # Until it is replaced this worker is dead, and a second kill would count for nothing.
            del self._running[slot]
            if isinstance(job, ShardJob):
                self._look(job)
            else:
                self._kills.others += 1
        return events

    def _waits_for_a_trace(self, job: AnyJob) -> bool:
        """Tell whether this would be the last kill, and all of them would be of workers that ran nothing yet."""
        is_idle = isinstance(job, ShardJob) and not running_file(Path(job.running), job.key).exists()
        return is_idle and self._kills.before + 1 >= self._kills.wanted

    def _look(self, job: ShardJob) -> None:
        file = running_file(Path(job.running), job.key)
        if not file.exists():
            self._kills.before += 1
            return
        left = codec.load(file)
        if left not in shard_traces(job.shard):
            self._kills.wrong.append(f"{file.name} is none of its shard's traces")
        elif (kind := check(left.explicit(), self._tapes).kind) not in ("agreed", "diverged", "vacuous"):
            self._kills.wrong.append(f"{file.name} came to {kind} when it was run again")
        else:
            self._kills.kept += 1


def outcome(folder: Path, pool: WorkerPool, num_traces: int, faults: tuple[str, ...]) -> str:
    """Hunt with faults on, and return the report as JSON."""
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
    """Hunt undisturbed and under fire; return what is wrong."""
    with RayPool(cluster, workers, DEADLINE_SECONDS) as pool:
        calm = outcome(folder / "calm", pool, num_traces, faults)
    with KillingPool(cluster, workers, kills, seed) as killing:
        disturbed = outcome(folder / "killed", killing, num_traces, faults)
    wrong = list(kills.wrong)
    if disturbed != calm:
        lines = unified_diff(calm.splitlines(), disturbed.splitlines(), "undisturbed", "killed", lineterm="", n=0)
        wrong.append("the hunt came to something else than undisturbed:\n" + "\n".join(lines))
    if kills.made < kills.wanted:
        wrong.append(f"only {kills.made} workers were killed; give more --traces")
    written = [
        {path.name: path.read_bytes() for path in (folder / one / "artefacts").iterdir()} for one in ("calm", "killed")
    ]
    differ = sorted(name for name in written[0] | written[1] if written[0].get(name) != written[1].get(name))
    wrong += [f"artefacts/{name} is not the same in both" for name in differ]
    left = [path.name for path in (folder / "killed" / "running").iterdir()]
    return [*wrong, *(f"running/{name} was left behind" for name in left)]


def main() -> int:
    """Kill, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="workers to kill (default 200)")
    parser.add_argument("--traces", type=int, help="traces to hunt through (default: 8 a kill)")
    parser.add_argument("--seed", type=int, default=0, help="which moments (default 0)")
    parser.add_argument("--workers", type=int, default=WORKERS, help=f"workers at a time (default {WORKERS})")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="ID", help=f"default {FAULT}")
    arguments = parser.parse_args()
    kills, begin = Kills(arguments.kills), time.monotonic()
    num_traces = arguments.traces or 8 * arguments.kills
    faults = tuple(arguments.fault or (FAULT,))
    with tempfile.TemporaryDirectory() as folder, RayCluster("local", arguments.workers) as cluster:
        wrong = compare(cluster, Path(folder), kills, num_traces, arguments.seed, faults, arguments.workers)
    print(
        f"{kills.made} workers killed during {num_traces} traces, {time.monotonic() - begin:.0f} s: {kills.kept} left "
        f"the trace they ran, and it ran again; {kills.before} ran none; {kills.others} were at work on a finding"
    )
    print("\n".join(wrong) or "nothing was lost or doubled")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
