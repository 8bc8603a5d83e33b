"""Shards with dying workers are split to find the fatal trace; outside kills do not count."""

from cluster.campaigns.hunt.split_shards import SplitShards
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import Answer, AnyJob, Job, ShardJob, TryJob
from scenarios.generation.shards import TRACES_PER_SHARD, Shard
from tests.cluster.campaigns.hunt.fakes import (
    DEATH,
    DEATHS,
    NOTHING,
    Memory,
    canary_or,
    hit,
    hunt_of,
    report,
    run_through,
)
from workers.record.verdict import Agreed, Crashed, Judgement, Lost
from workers.run.shard import shard_traces
from workers.shrink.shrinker import TriedCandidates


def test_trace_that_kills_its_worker_is_found_and_shrunk_alone() -> None:
    ledger = Memory()
    hunt = hunt_of(TRACES_PER_SHARD, ledger)
    deadly = shard_traces(Shard(profile="labelled", seed=4, number=0))[7]

    def answer(job: AnyJob) -> Answer | Lost:
        match job:
            case ShardJob(shard=shard) if shard.first <= 7 < shard.first + shard.traces:
                return DEATH
            case ShardJob(shard=shard):
                return report(shard)
            case TryJob(candidates=candidates):
                assert len(candidates) == 1
                return DEATH if candidates[0].events else TriedCandidates(count=1)
            case _:
                return DEATH

    run_through(hunt, canary_or(answer), deaths=DEATHS)
    (triage,) = hunt.findings.by_bug.values()
    assert triage.state.trace.events == deadly.events
    assert triage.state.first == 7
    (judgement,) = ledger.artefacts
    assert isinstance(judgement.verdict, Crashed)
    assert judgement.verdict.error == "its process died"
    assert len(judgement.trace.events) == 1
    assert hunt.totals.tally.traces == TRACES_PER_SHARD
    assert hunt.unjudged == {}


def test_workers_killed_from_outside_leave_a_shard_unjudged() -> None:
    ledger = Memory()
    hunt = hunt_of(TRACES_PER_SHARD, ledger)

    def answer(job: AnyJob) -> Answer | Lost:
        match job:
            case ShardJob(shard=shard) if shard.first <= 7 < shard.first + shard.traces:
                return DEATH
            case ShardJob(shard=shard):
                return report(shard)
            case TryJob(candidates=candidates):
                return TriedCandidates(count=len(candidates))
            case Job(trace=trace):
                return Judgement(verdict=Agreed(stats=NOTHING), trace=trace, schedules=1)
            case _:
                raise AssertionError("a hunt asks for no trials")

    run_through(hunt, canary_or(answer), deaths=DEATHS)
    assert list(hunt.findings) == []
    assert ledger.artefacts == []
    assert hunt.unjudged == {0: "its workers died, and did not when it was run again"}
    again = hunt_of(TRACES_PER_SHARD, ledger)
    run_through(again, canary_or(answer), deaths=DEATHS)
    assert again.unjudged == hunt.unjudged


def test_split_shard_report_is_stored_once_all_parts_have_reports() -> None:
    ledger = Memory()
    jobs = hunt_of(TRACES_PER_SHARD).jobs
    split, whole = SplitShards(jobs, ledger), jobs.job("hunt", 0)
    split.split(whole.shard)
    parts = [task.job for task in split.tasks()]
    assert split.tasks() == [], "each is asked for once"
    assert len(parts) == TRACES_PER_SHARD
    for part in parts:
        assert isinstance(part, ShardJob)
        assert 0 in split
        assert ledger.shards == {}
        joined = split.take(part.shard, report(part.shard))
    assert joined == ledger.shards[whole.key] == report(whole.shard)
    assert 0 not in split


def test_split_shard_with_lost_traces_is_unjudged_and_ignores_others() -> None:
    hunt = hunt_of(TRACES_PER_SHARD)
    raised = Lost(reason="the worker raised ValueError: x")
    _canary, whole = hunt.tasks(1, 2, True)
    hunt.take(Record(whole.job.key, 1, DEATH, DEATHS), 0)
    parts = [task.job for task in hunt.tasks(1, 1, False) if isinstance(task.job, ShardJob)]
    assert len(parts) == TRACES_PER_SHARD
    for number, part in enumerate(parts):
        result = raised if number in (3, 5) else report(part.shard)
        hunt.take(Record(part.key, 1, result), 0)
        assert hunt.num_done == (number + 1 if number < 3 else TRACES_PER_SHARD)
    assert hunt.unjudged == {0: raised.reason}
    assert hunt.totals.tally.traces == 0
    assert hunt.repeats.tasks() == []


def test_a_shard_whose_report_ended_with_a_finding_is_continued_and_joined() -> None:
    ledger = Memory()
    hunt = hunt_of(TRACES_PER_SHARD, ledger)
    _canary, whole = hunt.tasks(1, 2, True)
    assert isinstance(whole.job, ShardJob)
    first = report(whole.job.shard.model_copy(update={"traces": 5}), hit("x", 4))
    hunt.take(Record(whole.job.key, 1, first), 0)
    assert hunt.num_done == 5
    assert not list(hunt.findings), "findings are taken in the order of whole shards"
    (rest,) = [task.job for task in hunt.tasks(1, 1, False) if isinstance(task.job, ShardJob)]
    assert (rest.shard.first, rest.shard.traces) == (5, TRACES_PER_SHARD - 5)
    hunt.take(Record(rest.key, 1, report(rest.shard, hit("x", 7))), 0)
    assert ledger.shards[whole.job.key] == report(whole.job.shard, hit("x", 4, count=2))
    assert [(each.state.first, each.count) for each in hunt.findings] == [(4, 2)]


def test_a_finding_that_was_reported_stays_if_the_rest_of_its_shard_is_lost() -> None:
    hunt = hunt_of(TRACES_PER_SHARD)
    _canary, whole = hunt.tasks(1, 2, True)
    assert isinstance(whole.job, ShardJob)
    hunt.take(Record(whole.job.key, 1, report(whole.job.shard.model_copy(update={"traces": 5}), hit("x", 4))), 0)
    (rest,) = [task.job for task in hunt.tasks(1, 1, False) if isinstance(task.job, ShardJob)]
    hunt.take(Record(rest.key, 1, Lost(reason="the worker raised ValueError: x")), 0)
    assert [each.state.first for each in hunt.findings] == [4]
    assert hunt.unjudged == {0: "the worker raised ValueError: x"}
