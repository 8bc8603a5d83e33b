"""Coverage of a shard counts the events of its traces and the compared planes."""

from functools import cache

from scenarios.generation.shards import Shard
from workers.judge.checker import Checker
from workers.oracle.model_values import ModelValueCache
from workers.record.observation import VARIABLES
from workers.run.check import check
from workers.run.coverage import joined_coverage
from workers.run.shard import ShardReport, judge_shard, shard_traces

SHARD = Shard(profile="labelled", seed=3, number=1, traces=3)


@cache
def report() -> ShardReport:
    """Return the report of a clean shard of three traces."""
    return judge_shard(SHARD, ModelValueCache(), lambda _: None)


def test_coverage_counts_events_by_policies_of_trace() -> None:
    traces = shard_traces(SHARD)
    counted = report().coverage["eager lazy random"]
    kinds = {event.do for trace in traces for event in trace.events}
    assert kinds
    for kind in kinds:
        having = sum(kind in {event.do for event in trace.events} for trace in traces)
        assert counted[kind]["tokens"] == counted[kind]["counts"] == having


def test_coverage_counts_races_under_first_policy_only() -> None:
    coverage = report().coverage
    assert coverage["eager"]["submit"] == {"races": 3}
    assert not any("races" in planes for planes in coverage["eager lazy random"].values())


def test_planes_of_run_depend_on_specification() -> None:
    trace = shard_traces(SHARD)[0]
    planes = check(trace, ModelValueCache()).stats.planes  # type: ignore[union-attr]
    known = {variable.plane for variable in VARIABLES.values()} | {"races", "liveness", "contracts"}
    assert {"tokens", "counts", "inputs", "blocks", "races", "liveness", "contracts"} <= set(planes) <= known
    assert ("prefix" in planes) is trace.spec.prefix_cache
    assert Checker(trace, ModelValueCache()).planes == ()


def test_joined_coverage_is_order_independent() -> None:
    parts = [
        judge_shard(SHARD.model_copy(update={"first": first, "traces": 1}), ModelValueCache(), lambda _: None).coverage
        for first in range(3)
    ]
    assert joined_coverage(parts) == joined_coverage(reversed(parts)) == report().coverage
