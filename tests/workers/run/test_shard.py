"""Shard of a hunt: a function of its key, with one hit for each bug."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from scenarios.codec import dumps
from scenarios.events import Schedule
from scenarios.generation.shards import TRACES_PER_SHARD, Profile, Shard, with_faults
from scenarios.generation.strategies import random_trace
from scenarios.trace import Trace, problems
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.shard import ShardReport, shard_traces
from workers.run.worker import Worker
from workers.shrink.shrinker import Shrinking, shrink

ROOT = Path(__file__).resolve().parents[3]
BACKUP, STAGING = "vllm-38556-backup-token", "ascend-12079-staging"
# None, in counts, in a draft model, in a prefix cache, in grammars, in the order of lanes; and two at a time.
HISTORY: tuple[tuple[str, ...], ...] = (
    (),
    ("vllm-26231-chunks-count",),
    ("xllm-960-bonus-hole",),
    ("vllm-54288-last-token",),
    ("sglang-25361-nobody-waits",),
    (STAGING,),
    (BACKUP, "openvino-4190-last-draft"),
)
PROFILES: tuple[Profile, ...] = ("labelled", "hypothesis")


def hunt(worker: Worker, **fields: object) -> tuple[ShardReport, list[Trace]]:
    """Return the report of a shard and the traces passed to `begin`."""
    begun: list[Trace] = []
    shard = Shard.model_validate({"profile": "labelled", "seed": 5, "number": 3, "traces": 5, **fields})
    return worker.hunt(shard, begun.append), begun


@pytest.mark.parametrize("profile", PROFILES)
def test_shard_traces_are_independent_of_earlier_shards_and_ci(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    shards = [Shard(profile=profile, seed=7, number=number, traces=6) for number in range(3)]
    before = [[dumps(trace) for trace in shard.generate()] for shard in shards]
    monkeypatch.setenv("CI", "true")
    assert os.environ["CI"] == "true"
    assert [[dumps(trace) for trace in shard.generate()] for shard in reversed(shards)] == before[::-1]
    assert all(len(texts) == 6 for texts in before)
    assert all(one != other for one, other in pairwise(before))


def test_shard_traces_are_the_same_in_new_process() -> None:
    shards = [Shard(profile=profile, seed=7, number=1, traces=4) for profile in PROFILES]
    here = [dumps(trace) for shard in shards for trace in shard.generate()]
    code = (
        "from scenarios.codec import dumps; from scenarios.generation.shards import Shard\n"
        f"print([dumps(trace) for shard in map(Shard.model_validate_json, {[s.model_dump_json() for s in shards]})"
        " for trace in shard.generate()])"
    )
    there = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "workers.run.worker" in sys.modules
    assert there == f"{here}\n"


def test_consecutive_shards_continue_one_sequence_of_traces() -> None:
    found = [dumps(t) for number in (0, 1) for t in Shard(profile="labelled", seed=2, number=number).generate()]
    assert found == [dumps(random_trace(2 << 32 | index)) for index in range(2 * TRACES_PER_SHARD)]


@pytest.mark.parametrize("profile", PROFILES)
def test_clean_shard_agrees_and_reports_counts(profile: Profile) -> None:
    report, begun = hunt(Worker(), profile=profile)
    assert report.hits == ()
    assert (report.traces, report.runs, report.reached) == (5, 15, 5)
    assert len(begun) == len(report.digests) == len(report.lengths) == 5
    assert report.probes["admit"] == 5
    assert sum(report.lengths) * 3 == report.steps
    eager = [trace.model_copy(update={"schedule": Schedule()}) for trace in begun]
    verdicts = [check(trace, ModelValueCache(), Options(races=False)) for trace in eager]
    stats = [verdict.stats for verdict in verdicts if isinstance(verdict, Agreed)]
    assert len(stats) == 5
    assert report.probes == Counter(probe for each in stats for probe in sorted(each.probes))
    assert report.firsts == {p: min(i for i, each in enumerate(stats) if p in each.probes) for p in report.probes}


def said_of(worker: Worker, faults: tuple[str, ...]) -> str:
    """Return the results of a worker for a shard and for its first finding, shrunk, as JSON."""
    report, _ = hunt(worker, number=1, traces=3, faults=faults)
    said = [report.model_dump_json()]
    for hit in report.hits[:1]:
        state = Shrinking.of(hit.trace, hit.verdict, limit=12)
        state = shrink(state, worker.attempt, most=4)
        said += [state.model_dump_json(), worker.judge(state.trace, False).model_dump_json()]
    return "\n".join(said)


def test_worker_results_are_independent_of_job_order() -> None:
    # The same prompts under many faults: what a worker keeps of one job could be of use in all the others.
    fresh = [said_of(Worker(), faults) for faults in HISTORY]
    used = Worker()
    for number in range(2):
        hunt(used, number=number, traces=4)
    again = [said_of(used, faults) for faults in reversed(HISTORY)]
    assert again[::-1] == fresh
    assert sum("verdict" in said for said in fresh) == len(HISTORY) - 1


@pytest.mark.parametrize(("fault", "plane"), [(BACKUP, "inputs"), (STAGING, "races")])
def test_shard_reports_each_bug_as_one_hit(fault: str, plane: str) -> None:
    report, begun = hunt(Worker(), number=4, traces=8, faults=(fault,))
    assert [hit.signature.plane for hit in report.hits] == [plane]
    (hit,) = report.hits
    assert hit.count >= 2
    assert hit.trace.events == begun[hit.index].events
    assert hit.trace.faults == (fault,)
    assert isinstance(hit.verdict, Diverged)
    assert report.reached >= hit.count


def test_shard_with_fault_has_traces_that_allow_it() -> None:
    fault = FAULTS["vllm-38556-accepted-counts"]
    shard = Shard(profile="labelled", seed=5, number=3, faults=(fault.id,))
    traces = [*shard_traces(shard)]
    assert [fault.missing(trace.spec) for trace in traces] == [None] * shard.traces


def test_impossible_requirement_leaves_trace_unchanged() -> None:
    trace = random_trace(1)
    assert with_faults(trace, (("max_model_len", 2),), (BACKUP,)) == trace.model_copy(update={"faults": (BACKUP,)})
    assert problems(with_faults(trace, (("depth", 1),), (BACKUP,))) == []
