"""Smoke scenarios: each reaches its probes, and engine and oracle agree."""

from pathlib import Path

import pytest

from scenarios.codec import find_scenarios, load
from scenarios.events import Schedule
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged, Judgement, Vacuous
from workers.run.check import check
from workers.run.engine_run import Options
from workers.run.schedules import all_schedules
from workers.run.worker import Worker

PATHS = find_scenarios([Path(__file__).parents[3] / "scenarios" / "smoke"])
TRACES = {path.stem: load(path) for path in PATHS}
SHARES = 11
DISCARDING = [name for name, trace in TRACES.items() if {"discard", "discard_while_drafting"} & set(trace.expect)]
COUNTS_ON_THE_HOST = [name for name, trace in TRACES.items() if trace.spec.accepted_counts == "host"]


def under(trace: Trace, schedule: Schedule) -> Trace:
    return trace.model_copy(update={"schedule": schedule})


def with_fault(trace: Trace, fault: str, sweep: bool) -> Judgement:
    return Worker().judge(trace.model_copy(update={"faults": (fault,)}), sweep)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.stem))
def test_smoke_scenario_expects_its_probes(path: Path) -> None:
    assert path.read_text().startswith("# ")
    assert len(load(path).expect) >= 2


def test_smoke_scenarios_cover_both_values_of_every_switch() -> None:
    specs = [trace.spec for trace in TRACES.values()]
    assert len(specs) >= 16
    assert {spec.layers for spec in specs} == {"hybrid", "attention"}
    assert {spec.depth for spec in specs} == {1, 2}
    assert {spec.accepted_counts for spec in specs} == {"device", "host"}
    assert {spec.logprobs_mode for spec in specs} == {"raw", "processed"}
    assert {spec.pad for spec in specs} == {True, False}


def schedules_of(place: int) -> list[Schedule]:
    """Return eager, lazy and every SHARES-th other schedule, different ones by scenario."""
    eager, lazy, *others = all_schedules()
    return [eager, lazy, *others[place % SHARES :: SHARES]]


@pytest.mark.parametrize("place", range(len(TRACES)), ids=list(TRACES))
def test_smoke_scenario_agrees_with_same_bytes_under_all_schedules(
    place: int,
) -> None:
    trace = list(TRACES.values())[place].explicit()
    value_cache = ModelValueCache()
    digests: set[str] = set()
    run_ahead: dict[str, int] = {}
    for schedule in schedules_of(place):
        verdict = check(under(trace, schedule), value_cache, Options(races=schedule.policy in ("eager", "lazy")))
        assert isinstance(verdict, Agreed), (schedule, verdict)
        digests.add(verdict.stats.digest)
        run_ahead.setdefault(schedule.policy, verdict.stats.run_ahead_max)
    assert len(digests) == 1
    # At depth 1 nothing is in flight when a step is scheduled; at depth 2 a lazy device has not begun it.
    assert run_ahead["lazy"] == trace.spec.depth - 1


def test_eleven_smoke_scenarios_cover_all_46_schedules() -> None:
    assert len(all_schedules()) == 46
    assert {schedule for place in range(SHARES) for schedule in schedules_of(place)} == {*all_schedules()}


@pytest.mark.parametrize("name", TRACES)
def test_deleting_an_event_makes_scenario_vacuous_for_each_probe(name: str) -> None:
    trace, value_cache = TRACES[name].explicit(), ModelValueCache()
    missed: set[str] = set()
    for index, event in enumerate(trace.events):
        if missed == set(trace.expect):
            break
        without = trace.model_copy(update={"events": trace.events[:index] + trace.events[index + 1 :]})
        verdict = check(without, value_cache, Options(races=False))
        assert isinstance(verdict, Agreed | Vacuous), (event, verdict)
        if isinstance(verdict, Vacuous):
            assert {each.kind for each in verdict.missing} == {"probe"}
            missed |= {str(each.values["probe"]) for each in verdict.missing}
    assert missed == set(trace.expect)


@pytest.mark.parametrize("name", DISCARDING)
def test_chunk_scenario_finds_backup_token_fault(name: str) -> None:
    verdict = with_fault(TRACES[name], "vllm-38556-backup-token", sweep=False).verdict
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == ("inputs", "backup")


@pytest.mark.parametrize("name", COUNTS_ON_THE_HOST)
def test_accepted_counts_fault_harms_only_with_late_copy(name: str) -> None:
    judgement = with_fault(TRACES[name], "vllm-38556-accepted-counts", sweep=True)
    assert isinstance(judgement.verdict, Diverged)
    assert judgement.verdict.difference.plane == "counts"
    assert judgement.verdict.difference.missing_order is not None
    agrees = {outcome.schedule: outcome.agrees for outcome in judgement.outcomes}
    assert agrees[Schedule()]
    assert not agrees[Schedule(policy="lazy")]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("structured_output", "vllm-44297-decided-at-the-start"),
        ("drafts_kept_together", "ascend-7807-one-by-one"),
    ],
)
def test_rare_fault_is_found_by_scenario_of_its_feature(name: str, fault: str) -> None:
    verdict = with_fault(TRACES[name], fault, sweep=False).verdict
    assert isinstance(verdict, Diverged)
    assert verdict.difference.plane == FAULTS[fault].plane


def test_each_fault_is_found_by_several_scenarios() -> None:
    assert len(DISCARDING) >= 3
    assert len(COUNTS_ON_THE_HOST) >= 2
