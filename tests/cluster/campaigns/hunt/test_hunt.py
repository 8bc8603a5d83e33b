"""State machine of a hunt: results are complete and independent of the order of answers."""

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.campaigns.hunt.hunt import UNJUDGED_MAX, Hunt
from cluster.campaigns.planner import Task
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import ShardJob
from scenarios.generation.shards import TRACES_PER_SHARD, Shard
from tests.cluster.campaigns.hunt.fakes import (
    Memory,
    buggy,
    canary_or,
    clean,
    hunt_of,
    report,
    run_through,
)
from workers.record.verdict import Lost
from workers.run.shard import ShardReport


def outcome_of(hunt: Hunt) -> object:
    found = [
        (bug, p.count, p.state.first, p.state.judgement, p.state.artefact) for bug, p in hunt.findings.by_bug.items()
    ]
    return found, hunt.totals.tally, hunt.repeats.num_judged


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_hunt_result_is_independent_of_answer_order_and_slots(seed: int, slots: int) -> None:
    calm, wild = hunt_of(20 * TRACES_PER_SHARD), hunt_of(20 * TRACES_PER_SHARD)
    run_through(calm, canary_or(buggy))
    run_through(wild, canary_or(buggy), Random(seed), slots=slots)
    assert outcome_of(wild) == outcome_of(calm)
    assert calm.findings.by_bug["counts x"].count == 14
    assert calm.findings.by_bug["counts x"].state.first == TRACES_PER_SHARD + 2


def test_interrupted_hunt_has_the_same_result_after_resumption() -> None:
    whole = hunt_of(6 * TRACES_PER_SHARD)
    run_through(whole, canary_or(buggy))
    for stop in range(1, 40, 3):
        ledger = Memory()
        hunt = hunt_of(6 * TRACES_PER_SHARD, ledger)
        out: list[Task] = []
        for _ in range(stop):
            out += hunt.tasks(2, 4 - len(out), True)
            if out:
                task = out.pop(0)
                result = canary_or(buggy)(task.job)
                if isinstance(task.job, ShardJob) and isinstance(result, ShardReport):
                    ledger.keep_shard(task.job, 1, result)
                hunt.take(Record(task.job.key, 1, result), 0)
        resumed = hunt_of(6 * TRACES_PER_SHARD, ledger)
        run_through(resumed, canary_or(buggy))
        assert outcome_of(resumed)[0][0][:4] == outcome_of(whole)[0][0][:4]  # type: ignore[index]
        assert resumed.totals.tally == whole.totals.tally
        assert len(ledger.artefacts) == 1


def test_a_worker_that_raises_leaves_shards_unjudged_and_soon_ends_the_hunt() -> None:
    hunt = hunt_of(None)
    run_through(hunt, canary_or(lambda job: Lost(reason="the worker raised ValueError: x")))
    assert len(hunt.unjudged) >= UNJUDGED_MAX
    assert hunt.totals.tally.traces == 0


def test_the_last_shard_holds_what_is_left_of_the_traces() -> None:
    hunt = hunt_of(2 * TRACES_PER_SHARD + 1)
    tasks = run_through(hunt, canary_or(clean))
    shards: Sequence[Shard] = [t.job.shard for t in tasks if isinstance(t.job, ShardJob) and t.job.role == "hunt"]
    assert [shard.traces for shard in shards] == [TRACES_PER_SHARD, TRACES_PER_SHARD, 1]
    assert hunt.totals.tally.traces == 2 * TRACES_PER_SHARD + 1


def test_done_traces_include_those_behind_unfinished_shards() -> None:
    hunt = hunt_of(3 * TRACES_PER_SHARD)
    tasks = [task for task in hunt.tasks(3, 4, True) if isinstance(task.job, ShardJob) and task.job.role == "hunt"]
    for num_done, number in enumerate((2, 1, 0), 1):
        job = tasks[number].job
        assert isinstance(job, ShardJob)
        result = Lost(reason="the worker raised ValueError: x") if number == 1 else report(job.shard)
        hunt.take(Record(job.key, 1, result), 0)
        assert hunt.num_done == num_done * TRACES_PER_SHARD
    assert hunt.totals.tally.traces == 2 * TRACES_PER_SHARD
