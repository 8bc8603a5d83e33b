"""Measure jobs per second and memory of driver, coordinator, worker pool and store.

No engine runs, so that only the coordination takes time.

Run with `python -m benchmarks.speed.coordination`. `--ray off` leaves Ray out and measures only our code. The bare
calls measure only Ray: the same actors give the same answers without our code. Each job is a small trace that is
written before it runs, judged, and recorded as a result, as in `specstorm run`.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cluster.campaigns.driver import drive
from cluster.campaigns.planner import Counts, Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.host import EngineHost
from cluster.dispatch.job import AnyJob, Job
from cluster.dispatch.pool import InProcessPool, RayCluster, RayPool, WorkerPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from scenarios.events import Submit
from scenarios.trace import Trace
from workers.record.verdict import Agreed, Judgement, Stats
from workers.targets.target import DEFAULT_CONFIG, RunConfig

JUDGE = "benchmarks.speed.coordination:NoEngine"
SUBMIT = Submit(tick=0, request="r", prompt=(1, 2, 3), max_tokens=4)
STATS = Stats(requests=1, steps=12, commits=11, captures=99, run_ahead_max=1, digest="00ff", probes={"preemption": 2})
DEADLINE_SECONDS = 60.0
SAMPLES = 10


def tree_seconds() -> float:
    """Return the CPU time of this process and all its live descendants: driver, actors and Ray."""
    ticks, parents = dict[int, int](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(fields[1]), int(fields[11]) + int(fields[12])
    tree, size = {os.getpid()}, 0
    while len(tree) > size:
        size = len(tree)
        tree |= {pid for pid, parent in parents.items() if parent in tree}
    return sum(ticks[pid] for pid in tree) / os.sysconf("SC_CLK_TCK")


def rate_line(what: str, num_jobs: int, seconds: float, busy: float, all_busy: float) -> str:
    """Return one line with the rate of jobs or calls, and the CPU time of each."""
    own, whole = busy / num_jobs * 1e6, all_busy / num_jobs * 1e6
    return f"  {num_jobs / seconds:8,.0f} {what}/s; CPU time each: {own:,.0f} us here, {whole:,.0f} us in all"


class NoEngine:
    """A judge that runs no engine and agrees at once."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig = DEFAULT_CONFIG) -> Judgement:
        """Return the same verdict (agreed) for any trace."""
        return Judgement(verdict=Agreed(stats=STATS), trace=trace, schedules=1)


class Stream:
    """Planner of `num_jobs` jobs with different traces, created on demand and then dropped."""

    def __init__(self, store: Store, num_jobs: int) -> None:
        self._store = store
        self._num_jobs = num_jobs
        self._asked = self._done = 0
        self._jobs: dict[str, Job] = {}

    def tasks(self, slots: int, room: int) -> Sequence[Task]:
        """Return the next jobs, at most `room`."""
        tasks = []
        for number in range(self._asked, min(self._num_jobs, self._asked + max(0, room))):
            job = Job(key=f"{number:032x}", trace=Trace(seed=number, events=(SUBMIT,)), sweep=False)
            self._jobs[job.key] = job
            tasks.append(Task(job))
        self._asked += len(tasks)
        return tasks

    def begin(self, job: AnyJob, attempt: int, slot: int) -> None:
        """Store the attempt and its trace before the job runs."""
        self._store.begin(self._jobs[job.key], attempt, slot, "no-op")

    def take(self, record: Record) -> None:
        """Store the result of a job."""
        assert isinstance(record.result, Judgement), record
        self._store.record(self._jobs.pop(record.job), record.attempt, record.result, "no-op")
        self._done += 1

    def is_done(self) -> bool:
        """Return whether every job has its result."""
        return self._done == self._num_jobs

    def counts(self) -> Counts:
        """Return the number of jobs with results."""
        return Counts(self._done, self._num_jobs, 0)


class Sampled:
    """A progress display that instead samples this process's resident memory."""

    def __init__(self, num_jobs: int) -> None:
        self._every = max(1, num_jobs // SAMPLES)
        self.samples: list[tuple[int, float]] = []

    def update(self, counts: Counts) -> None:
        """Sample the memory if enough jobs have finished since the last sample."""
        if counts.done >= self._every * (len(self.samples) + 1):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.samples.append((counts.done, pages * resource.getpagesize() / 2**20))


def through_everything(pool: WorkerPool, num_jobs: int, folder: Path) -> list[tuple[int, float]]:
    """Run the jobs through the whole driver, print jobs per second; return memory samples."""
    sampled = Sampled(num_jobs)
    with Store(folder) as store:
        begin, spent, whole = time.perf_counter(), time.process_time(), tree_seconds()
        drive(Stream(store, num_jobs), pool, Stop(), sampled, store)
        seconds, spent, whole = time.perf_counter() - begin, time.process_time() - spent, tree_seconds() - whole
    print(rate_line("jobs", num_jobs, seconds, spent, whole))
    return sampled.samples


def bare(cluster: RayCluster, workers: int, num_jobs: int) -> None:
    """Print Ray actor calls per second without driver and store, one call at a time per actor."""
    ray = cluster.module
    actors = [ray.remote(EngineHost).remote(JUDGE) for _ in range(workers)]
    ray.get([actor.ready.remote() for actor in actors])
    job = Job(key="0" * 32, trace=Trace(seed=1, events=(SUBMIT,)), sweep=False).model_dump_json()
    begin, spent, whole = time.perf_counter(), time.process_time(), tree_seconds()
    calls: dict[Any, Any] = {actor.perform.remote(job): actor for actor in actors}
    for _ in range(num_jobs):
        (finished,), _ = ray.wait(list(calls), num_returns=1)
        ray.get(finished)
        actor = calls.pop(finished)
        calls[actor.perform.remote(job)] = actor
    seconds, spent, whole = time.perf_counter() - begin, time.process_time() - spent, tree_seconds() - whole
    print(f"bare calls of {workers} actors, one at a time each:")
    print(rate_line("calls", num_jobs, seconds, spent, whole))
    for actor in actors:
        ray.kill(actor)


def main() -> int:
    """Print jobs per second in one process, on Ray actors, and for bare actor calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs (default 20,000)")
    parser.add_argument("--workers", type=int, default=2, help="actors (default 2)")
    parser.add_argument("--ray", choices=("off", "local"), default="local")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place: AbstractContextManager[RayCluster | None] = nullcontext()
        if arguments.ray == "local":
            place = RayCluster("local", arguments.workers)
        with place as cluster:
            if cluster is None:
                print("driver, coordinator, store and host in one process, without Ray:")
                samples = through_everything(InProcessPool(JUDGE), arguments.jobs, Path(folder))
            else:
                bare(cluster, arguments.workers, arguments.jobs // 4)
                print(f"driver, coordinator, pool and store, {arguments.workers} actors:")
                with RayPool(cluster, arguments.workers, DEADLINE_SECONDS, JUDGE) as pool:
                    samples = through_everything(pool, arguments.jobs, Path(folder))
    print("  resident MB: " + ", ".join(f"{megabytes:.0f} at {done:,}" for done, megabytes in samples))
    return 0


if __name__ == "__main__":
    sys.exit(main())
