"""Totals of a hunt, over all traces and by generator."""

from pathlib import Path

import pytest

from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.jobs import HuntSettings
from cluster.campaigns.hunt.shard_reports import Totals
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import ShardJob
from cluster.reports.hunt_report import hunt_document, hunt_lines
from scenarios.generation.shards import TRACES_PER_SHARD
from scenarios.probes import PROBES
from tests.cluster.campaigns.hunt.fakes import Memory, hit, hunt_of, report
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM


def test_generators_alternate_by_shard_and_have_separate_totals() -> None:
    hunt = Hunt(HuntSettings(seed=4, canary=""), Memory(), Path("running"), 3 * TRACES_PER_SHARD)
    for task in hunt.tasks(1, 3, True):
        assert isinstance(task.job, ShardJob)
        number = task.job.shard.number
        assert task.job.shard.generator == ("labelled", "hypothesis", "labelled")[number]
        hits = [hit("a", count=2)] if number == 1 else [hit("b"), hit("a")] if number == 2 else []
        hunt.take(Record(task.job.key, 1, report(task.job.shard, *hits)), 0)
    assert {name: share.traces for name, share in hunt.totals.shares.items()} == {
        "labelled": 2 * TRACES_PER_SHARD,
        "hypothesis": TRACES_PER_SHARD,
    }
    by_one, by_other = hunt.totals.shares["labelled"].bugs, hunt.totals.shares["hypothesis"].bugs
    assert list(by_one.values()) == [1, 1]
    assert list(by_other.values()) == [2]
    assert hunt.totals.tally.bugs == by_one + by_other
    entries = hunt_document(hunt, 1).generators
    assert entries["hypothesis"].bugs == dict(by_other)
    lines = "\n".join(hunt_lines(hunt, Path("x")))
    assert "labelled: 24 traces (67%), 1 probes hit, 2 of 2 bugs in 2 traces met" in lines
    assert "hypothesis: 12 traces (33%), 1 probes hit, 1 of 2 bugs in 2 traces met" in lines


def test_single_generator_has_no_share_line() -> None:
    hunt = Hunt(HuntSettings(profile="labelled", canary=""), Memory(), Path("running"), TRACES_PER_SHARD)
    (task,) = hunt.tasks(1, 1, True)
    assert isinstance(task.job, ShardJob)
    hunt.take(Record(task.job.key, 1, report(task.job.shard)), 0)
    assert not any("labelled:" in line for line in hunt_lines(hunt, Path("x")))


@pytest.mark.parametrize(
    ("num_traces", "num_judged", "first"),
    [
        (None, 0, "no trace was judged"),
        (24, 0, "none of 24 traces was judged"),
        (24, 12, "12 of 24 traces (median "),
        (12, 12, "12 traces (median "),
    ],
)
def test_hunt_report_counts_only_judged_traces(num_traces: int | None, num_judged: int, first: str) -> None:
    hunt = Hunt(HuntSettings(profile="labelled", canary=""), Memory(), Path("running"), num_traces)
    for task in hunt.tasks(1, num_judged // TRACES_PER_SHARD, True):
        assert isinstance(task.job, ShardJob)
        hunt.take(Record(task.job.key, 1, report(task.job.shard)), 0)
    lines = list(hunt_lines(hunt, Path("x")))
    assert lines[1].startswith(first)
    assert "determinism: not judged, no shard was judged twice" in lines
    assert lines[-1] == ("no findings" if num_judged else "findings: not judged")
    assert any(line.startswith("probes hit: ") for line in lines) == bool(num_judged)


def test_uncounted_probes_are_not_reported_as_never_hit() -> None:
    settings = HuntSettings(profile="labelled", canary="", config=RunConfig(engine=VLLM))
    hunt = Hunt(settings, Memory(), Path("running"), TRACES_PER_SHARD)
    (task,) = hunt.tasks(1, 1, True)
    assert isinstance(task.job, ShardJob)
    hunt.take(Record(task.job.key, 1, report(task.job.shard)), 0)
    counted = target_kind(VLLM).capabilities.probes
    (line,) = (line for line in hunt_lines(hunt, Path("x")) if line.startswith("probes hit: "))
    assert line.startswith(f"probes hit: 1 of {len(counted)}; never hit: name_reused, resume, discard, ")
    assert line.endswith(f"; {len(PROBES) - len(counted)} others are not counted in engine vllm")
    told = hunt_document(hunt, 0)
    assert set(told.probes) == set(counted)
    assert set(told.probes_never_hit) == set(counted) - {"admit"}


def test_reports_are_added_in_shard_order() -> None:
    jobs = hunt_of(None).jobs
    totals = Totals(jobs)
    reports = [report(jobs.job("hunt", number).shard) for number in range(3)]
    for number in (2, 1):
        totals.add(number, reports[number])
        assert list(totals.fold()) == []
    totals.add(0, reports[0])
    assert list(totals.fold()) == list(enumerate(reports))
    assert (totals.num_shards, totals.tally.traces) == (3, 3 * TRACES_PER_SHARD)
    assert totals.firsts == {"admit": 0}
