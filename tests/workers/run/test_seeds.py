"""Seed scenarios: they agree, and find the bug if the change is reverted."""

from pathlib import Path

import pytest

from scenarios.codec import find_scenarios, load
from tests.workers.run.test_smoke import schedules_of
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.worker import Worker

TRACES = {path.stem: load(path) for path in find_scenarios([Path(__file__).parents[3] / "scenarios" / "seeds"])}
TAKEN_BACK = [
    ("000_accepted_counts", "vllm-38556-accepted-counts"),
    ("001_backup_tokens", "vllm-38556-backup-token"),
    ("002_hybrid_counts_in_flight", "vllm-38556-backup-token"),
    ("002_hybrid_counts_in_flight", "vllm-38556-accepted-counts"),
    ("002_hidden_states_extracted", "vllm-38556-backup-token"),
    ("002_hidden_states_extracted", "vllm-38556-accepted-counts"),
    ("002_hidden_states_extracted", "vllm-extract-first-column"),
    ("004_zero_bubble", "vllm-38556-backup-token"),
]


@pytest.mark.parametrize("name", TRACES)
def test_seed_scenario_agrees_under_every_schedule(name: str) -> None:
    assert isinstance(Worker().judge(TRACES[name], sweep=True).verdict, Agreed)


@pytest.mark.parametrize("place", range(len(TRACES)), ids=list(TRACES))
def test_seed_scenario_agrees_and_reaches_its_probes(place: int) -> None:
    trace, value_cache = list(TRACES.values())[place].explicit(), ModelValueCache()
    assert len(trace.expect) >= 4
    for schedule in schedules_of(place):
        assert isinstance(check(trace.model_copy(update={"schedule": schedule}), value_cache), Agreed), schedule


@pytest.mark.parametrize(("name", "fault"), TAKEN_BACK)
def test_seed_scenario_finds_bug_of_code_before_change(name: str, fault: str) -> None:
    verdict = Worker().judge(TRACES[name].model_copy(update={"faults": (fault,)}), sweep=True).verdict
    assert isinstance(verdict, Diverged)
