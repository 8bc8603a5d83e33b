"""Rates of a hunt (`benchmarks.speed.rates`): counted steps, and CPU time of processes."""

import os
import subprocess
import sys

from benchmarks.speed.rates import descendants_here, processor_times, turn
from scenarios.generation.shards import Shard
from workers.run.worker import Worker


def test_turn_counts_steps_of_shard_and_eager_runs() -> None:
    shard = Shard(profile="labelled", seed=17, number=2, traces=3)
    seen = turn(shard)
    assert min(seen.seconds, seen.generating, seen.with_races, seen.without_races) > 0
    report = Worker().hunt(shard, lambda trace: None)
    assert (seen.steps, seen.eager_steps) == (report.steps, sum(report.lengths))


def test_child_processes_are_found_with_their_cpu_time() -> None:
    code = "import sys; sum(range(10**6)); print('done', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        times = processor_times()
        assert child.pid in descendants_here(times)
        assert os.getpid() not in descendants_here(times)
        assert times[child.pid][0] == os.getpid()
        assert times[child.pid][1] > 0
        child.communicate()
