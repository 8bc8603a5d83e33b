"""Measure the rate of a hunt, and where its time goes: `python -m benchmarks.speed.rates`.

On one core: engine steps per second with every check, traces per second, the cost of race detection, and the share of
each generator; CPU time, medians over shards. Then a hunt with the same work for each worker on a private Ray: wall
clock, and the CPU time of workers, coordinator and Ray. Plain processes that judge as many shards without Ray show how
much of the loss is due to the machine.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from cluster.campaigns.driver import drive
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.planner import HuntPlanner
from cluster.dispatch.coordinator import Event, ResultArrived, WorkerReady
from cluster.dispatch.job import ShardJob
from cluster.dispatch.pool import RayCluster, RayPool
from cluster.dispatch.session import Stop
from cluster.storage.store import Store
from scenarios.events import Schedule
from scenarios.generation.shards import TRACES_PER_SHARD, Profile, Shard
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.process import prepare_process
from workers.run.shard import judge_shard, shard_traces

SEED = 17
TICKS = os.sysconf("SC_CLK_TCK")


def spent(call: Callable[[], object]) -> float:
    """Return the CPU seconds that a call takes."""
    start = time.process_time()
    call()
    return time.process_time() - start


def steps_of(traces: list[Trace], value_cache: ModelValueCache, races: bool) -> int:
    """Check traces under the eager policy and return their number of engine steps."""
    steps = 0
    for trace in traces:
        verdict = check(trace.model_copy(update={"schedule": Schedule()}), value_cache, Options(races=races))
        assert isinstance(verdict, Agreed), verdict
        steps += verdict.stats.steps
    return steps


@dataclass(frozen=True, slots=True)
class Turn:
    """One shard on one core: seconds of all, of generation, of eager runs with or without races.

    `steps` and `eager_steps` count the steps of the whole shard and of its eager runs.
    """

    seconds: float
    generating: float
    with_races: float
    without_races: float
    steps: int
    eager_steps: int


def turn(shard: Shard) -> Turn:
    """Measure one shard: judged as in a hunt, then each trace with and without races."""
    value_cache = ModelValueCache()
    generating = spent(lambda: shard_traces(shard))
    start = time.process_time()
    report = judge_shard(shard, ModelValueCache(), lambda trace: None)
    seconds = time.process_time() - start
    assert not report.hits, report.hits
    traces = shard_traces(shard)
    eager_steps = steps_of(traces, value_cache, races=False)
    with_races = without_races = 0.0
    for index, trace in enumerate(traces):
        for races in (True, False) if (shard.number + index) % 2 else (False, True):
            one = spent(lambda trace=trace, races=races: steps_of([trace], value_cache, races))  # type: ignore[misc]
            with_races, without_races = with_races + one * races, without_races + one * (not races)
    return Turn(seconds, generating, with_races, without_races, report.steps, eager_steps)


def print_turns(turns: dict[Profile, list[Turn]]) -> None:
    """Print medians of the measured rates over shards."""

    def median(of: Callable[[Turn], float], profile: Profile = "labelled") -> float:
        return statistics.median(map(of, turns[profile]))

    count = len(turns["labelled"])
    print(f"one core, medians over {count} shards of {TRACES_PER_SHARD} traces, CPU time")
    print(f"  {median(lambda each: each.eager_steps / each.with_races):8.0f} checked steps/s, every check and races")
    print(
        f"  {median(lambda each: each.steps / each.seconds):8.0f} checked steps/s of a hunt: races in one run of three"
    )
    print(f"  {median(lambda each: TRACES_PER_SHARD / each.seconds):8.1f} traces/s, under three schedules each")
    print(f"  {median(lambda each: each.seconds):8.2f} s for each shard")
    print(f"  {median(lambda each: each.with_races / each.without_races):8.2f} cost of race detection (ratio)")
    for profile in turns:
        share = median(lambda each: each.generating / each.seconds, profile)
        print(f"  {share:8.1%} of a shard's time goes into generating it: {profile}")


class WarmPool(RayPool):
    """A worker pool whose workers have all judged a shard before it is used."""

    def __init__(self, cluster: RayCluster, workers: int, folder: Path) -> None:
        super().__init__(cluster, workers, 600.0)
        self._ready: list[Event] = []
        while len(self._ready) < workers:
            self._ready += super().wait(1.0)
        assert all(isinstance(event, WorkerReady) for event in self._ready), self._ready
        for slot in range(workers):
            shard = Shard(profile="labelled", seed=SEED + 1, number=slot)
            self.dispatch(slot, ShardJob.of("hunt", shard, folder), 1)
        answers: list[Event] = []
        while len(answers) < workers:
            answers += super().wait(1.0)
        assert all(isinstance(event, ResultArrived) for event in answers), answers

    def wait(self, seconds: float) -> list[Event]:
        """Return the stored events of ready workers in the first call, then new events."""
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        return super().wait(seconds)


def processor_times() -> dict[int, tuple[int, float]]:
    """Return the parent and the CPU seconds of each process on this machine, by id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        found[int(folder.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    return found


def descendants_here(times: dict[int, tuple[int, float]]) -> set[int]:
    """Return the process ids of all descendants of this process."""
    found, before = {os.getpid()}, 0
    while len(found) > before:
        before = len(found)
        found |= {pid for pid, (parent, _) in times.items() if parent in found}
    return found - {os.getpid()}


@dataclass(frozen=True, slots=True)
class Row:
    """A measured hunt: wall-clock seconds, and CPU seconds of workers, coordinator and Ray.

    `traces` counts the hunt's traces; the canary and traces that are judged twice are not included.
    """

    workers: int
    traces: int
    wall: float
    working: float
    here: float
    ray: float

    @property
    def rate(self) -> float:
        """Return traces per second of wall-clock time."""
        return self.traces / self.wall

    def line(self) -> str:
        """Return the measured hunt as a row of the table."""
        return (
            f"{self.workers:>7} {self.wall:>7.2f} {self.rate:>9.1f} {self.working:>10.2f} "
            f"{self.here:>13.2f} {self.ray:>6.2f}"
        )


def judge_alone(number: int, shards: int, ready: Barrier) -> None:
    """Judge shards in a separate process, once all processes are warm."""
    prepare_process()
    value_cache = ModelValueCache()
    judge_shard(Shard(profile="labelled", seed=SEED + 1, number=number), value_cache, lambda trace: None)
    ready.wait()
    for index in range(shards):
        judge_shard(
            Shard(profile="labelled", seed=SEED, number=number * shards + index), value_cache, lambda trace: None
        )


def alone(workers: int, shards: int) -> float:
    """Return the traces per second of plain processes with `shards` shards each."""
    begun = get_context("spawn")
    ready = begun.Barrier(workers + 1)
    processes = [begun.Process(target=judge_alone, args=(number, shards, ready)) for number in range(workers)]
    for process in processes:
        process.start()
    ready.wait()
    start = time.perf_counter()
    for process in processes:
        process.join()
    assert not any(process.exitcode for process in processes), [process.exitcode for process in processes]
    return workers * shards * TRACES_PER_SHARD / (time.perf_counter() - start)


HEAD = f"{'workers':>7} {'wall s':>7} {'traces/s':>9} {'working s':>10} {'coordinator s':>13} {'Ray s':>6}"


def hunt_of(cluster: RayCluster, workers: int, shards: int) -> Row:
    """Run a hunt on started workers and return its row of the table of rates."""
    traces = shards * TRACES_PER_SHARD
    with (
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder)) as store,
        WarmPool(cluster, workers, Path(folder) / "nowhere") as pool,
    ):
        planner = HuntPlanner(HuntSettings(seed=SEED), store, traces)
        before, here, start = processor_times(), time.process_time(), time.perf_counter()
        drive(planner, pool, Stop(), None, store)
        wall, here, after = time.perf_counter() - start, time.process_time() - here, processor_times()
        assert planner.hunt.totals.tally.traces == traces, "the hunt did not end"
        used = {pid: after[pid][1] - before.get(pid, (0, 0.0))[1] for pid in descendants_here(after)}
        working = sum(used.pop(pid) for pid in pool.pids if pid is not None)
    return Row(workers, traces, wall, working, here, sum(used.values()))


def print_rows(counts: Sequence[int], repeats: int, shards: int) -> None:
    """Measure hunts on each number of workers, in turns; print rows, median efficiencies."""
    print(f"\na hunt of {shards} shards for each worker on a private Ray, {len(os.sched_getaffinity(0))} CPUs here")
    print(HEAD)
    rows: dict[int, list[Row]] = {workers: [] for workers in counts}
    plain: dict[int, list[float]] = {workers: [] for workers in counts}
    with RayCluster("local", max(counts)) as cluster:
        for repeat in range(repeats):
            for workers in counts if repeat % 2 == 0 else counts[::-1]:
                rows[workers].append(hunt_of(cluster, workers, shards * workers))
                print(rows[workers][-1].line(), flush=True)
                plain[workers].append(alone(workers, shards))
    for workers in counts:
        pairs = list(zip(rows[workers], rows[counts[0]], strict=True))
        gained = statistics.median(row.rate / first.rate for row, first in pairs)
        beside = statistics.median((row.here + row.ray) / row.working for row in rows[workers])
        print(
            f"{workers:>4} workers: {gained:5.2f} x {counts[0]}, efficiency {gained * counts[0] / workers:.3f}; "
            f"coordinator and Ray use {beside:.1%} of the workers' CPU time"
        )
        lone = statistics.median(plain[workers])
        machine = statistics.median(here / one for here, one in zip(plain[workers], plain[counts[0]], strict=True))
        busy = statistics.median(row.working / (row.wall * workers) for row in rows[workers])
        print(
            f"     plain processes: {lone:.1f} traces/s, {machine:5.2f} x {counts[0]}, "
            f"efficiency {machine * counts[0] / workers:.3f}; workers of the hunt are busy {busy:.1%} of the time"
        )


def main() -> None:
    """Print the rate of judging on one core, then the rate of hunts with several workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=21, help="shards on one core (default 21)")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="numbers of workers (default 1 2)")
    parser.add_argument("--jobs", type=int, default=20, help="shards for each worker of a hunt (default 20)")
    parser.add_argument("--repeats", type=int, default=3, help="hunts on each number of workers; 0: none (default 3)")
    options = parser.parse_args()
    profiles: tuple[Profile, ...] = ("labelled", "hypothesis")
    for profile in profiles:
        turn(Shard(profile=profile, seed=SEED, number=0))
    turns: dict[Profile, list[Turn]] = {profile: [] for profile in profiles}
    for number in range(1, 1 + options.shards):
        for profile in profiles:
            turns[profile].append(turn(Shard(profile=profile, seed=SEED, number=number)))
    print_turns(turns)
    if options.repeats:
        print_rows(options.workers, options.repeats, options.jobs)


if __name__ == "__main__":
    main()
