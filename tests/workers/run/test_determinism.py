"""The same trace gives the same bytes in any process and under every schedule."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios.events import Schedule, Submit
from scenarios.generation.strategies import random_trace
from scenarios.sampling import Output
from scenarios.trace import Trace
from tests.workers.run.mutants import HOST_MUTANTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Stats
from workers.run.check import check
from workers.run.engine_run import digest_of
from workers.run.schedules import fixed_schedules
from workers.targets.specstorm import Specstorm

ROOT = Path(__file__).resolve().parents[3]
NUM_TRACES = 5


def verdicts() -> str:
    """Return the verdicts of some traces, with and without findings, as JSON."""
    value_cache = ModelValueCache()
    mutant = next(each for each in HOST_MUTANTS if each.name == "a gap loses the accepted count")
    found = [check(random_trace(seed).explicit(), value_cache) for seed in range(NUM_TRACES)]
    found += [
        check(random_trace(seed).explicit(), value_cache, kind=Specstorm(mutant.functions))
        for seed in range(NUM_TRACES)
    ]
    assert sum(isinstance(verdict, Diverged) for verdict in found) >= 1
    return "\n".join(verdict.model_dump_json() for verdict in found)


def test_verdict_json_is_independent_of_process_and_hash_seed() -> None:
    code = "from tests.workers.run.test_determinism import verdicts; print(verdicts())"
    here = verdicts()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=600
        )
        assert done.stdout.strip() == here


def test_earlier_traces_do_not_change_verdicts() -> None:
    used = ModelValueCache()
    for seed in range(NUM_TRACES):
        check(random_trace(seed).explicit(), used)
    for seed in reversed(range(NUM_TRACES)):
        trace = random_trace(seed).explicit()
        assert check(trace, used) == check(trace, ModelValueCache())


SCHEDULES = [*fixed_schedules()[:6], *(Schedule(policy="random", seed=seed) for seed in range(3))]


def of_any_schedule(stats: Stats) -> dict[str, object]:
    """Return the statistics that must be equal under all schedules.

    These are all but the distance that the host ran ahead, and the tasks pending at a point.
    `captures` is left out because of what the next test shows.
    """
    kept = stats.model_dump(exclude={"run_ahead_max", "captures"})
    kept["probes"].pop("move_while_pending", None)
    return kept


@pytest.mark.parametrize("seed", range(NUM_TRACES))
def test_every_schedule_of_a_trace_captures_the_same_bytes(seed: int) -> None:
    value_cache = ModelValueCache()
    trace = random_trace(seed).explicit()
    seen = []
    for schedule in SCHEDULES:
        verdict = check(trace.model_copy(update={"schedule": schedule}), value_cache)
        assert isinstance(verdict, Agreed), (schedule, verdict)
        seen.append(of_any_schedule(verdict.stats))
    assert len({schedule.policy for schedule in SCHEDULES}) == 4
    assert all(stats == seen[0] for stats in seen)


def test_last_state_before_pause_is_compared_by_every_schedule() -> None:
    events = tuple(Submit(tick=tick, request=f"r{tick}", prompt=(1, 2), max_tokens=5) for tick in (0, 30))
    captures = set()
    for schedule in SCHEDULES:
        verdict = check(Trace(events=events, schedule=schedule).explicit(), ModelValueCache())
        assert isinstance(verdict, Agreed)
        captures.add(verdict.stats.captures)
    assert len(captures) == 1


def test_different_traces_capture_different_bytes() -> None:
    value_cache = ModelValueCache()
    digests = []
    for seed in range(NUM_TRACES):
        verdict = check(random_trace(seed).explicit(), value_cache)
        assert isinstance(verdict, Agreed)
        digests.append(verdict.stats.digest)
    assert len(set(digests)) == NUM_TRACES


def test_digest_includes_logprobs_except_on_gpu() -> None:
    first, again = ({"a": Output((3, 4), "length", (3, -0.5 - less))} for less in (0.0, 1e-7))
    other = {"a": Output((3, 5), "length", (3, -0.5))}
    exact = [digest_of(each, is_exact=True) for each in (first, dict(first), again)]
    assert exact[0] == exact[1] != exact[2]
    rounded = [digest_of(each, is_exact=False) for each in (first, again, other)]
    assert rounded[0] == rounded[1] != rounded[2]
