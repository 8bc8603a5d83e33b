"""Timelines: recording does not change the run, and names the two tasks of a race."""

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from scenarios import codec
from workers.lanes.timeline import Task, Timeline, Use
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import HOST, Access, MissingOrder
from workers.record.verdict import Verdict
from workers.run.check import check
from workers.run.timeline import has_timeline, record_timeline, unordered_tasks
from workers.targets.target import RunConfig

SCENARIOS = Path(__file__).parents[3] / "scenarios"
MOVED = "regressions/vllm-38556-accepted-counts.yaml"
FILES = (MOVED, "smoke/everything.yaml", "smoke/draft_model.yaml", "regressions/vllm-32303-cut-off-input.yaml")


@cache
def recorded(name: str) -> tuple[Verdict, Timeline]:
    """Return the verdict and the timeline of a scenario file."""
    return record_timeline(codec.load(SCENARIOS / name).explicit())


@pytest.mark.parametrize("name", FILES)
def test_recording_timeline_does_not_change_verdict_or_captures(name: str) -> None:
    plain = check(codec.load(SCENARIOS / name).explicit(), ModelValueCache())
    verdict, _ = recorded(name)
    assert verdict.kind == plain.kind
    assert verdict.stats == plain.stats  # type: ignore[union-attr]


@pytest.mark.parametrize("name", FILES)
def test_timeline_tasks_have_unique_times_in_lane_order(name: str) -> None:
    _, timeline = recorded(name)
    times = [task.ran for task in timeline.tasks if task.ran is not None]
    assert sorted(times) == list(range(1, len(times) + 1))
    lanes: dict[int, list[Task]] = defaultdict(list)
    for task in sorted((task for task in timeline.tasks if task.ran is not None), key=lambda task: task.ran or 0):
        lanes[task.lane].append(task)
    assert lanes.keys() == set(range(len(timeline.lanes)))
    for tasks in lanes.values():
        assert [task.enqueued for task in tasks] == sorted(task.enqueued for task in tasks)
        assert [task.step for task in tasks] == sorted(task.step for task in tasks)


@pytest.mark.parametrize("name", FILES)
def test_timeline_respects_event_order(name: str) -> None:
    _, timeline = recorded(name)
    assert timeline.flows
    assert "event" not in {flow.event for flow in timeline.flows}
    for flow in timeline.flows:
        before, after = timeline.tasks[flow.before], timeline.tasks[flow.after]
        if after.ran is not None:
            assert before.ran is not None
            assert before.ran < after.ran, flow


def test_timeline_names_two_tasks_of_race() -> None:
    _, timeline = recorded(MOVED)
    missing = timeline.missing
    assert missing is not None
    first, second = timeline.tasks[missing.first], timeline.tasks[missing.second]
    assert (timeline.lanes[first.lane], first.op, first.step) == ("d2h_counts", "copy_accepted", 5)
    assert "accepted_counts" in first.buffers
    assert (timeline.lanes[second.lane], second.op, second.step) == ("host", "read", 6)
    assert "accepted_counts" in second.buffers
    # The trace holds the copy back: it runs after the read that it should have preceded.
    assert first.ran is not None
    assert second.ran is not None
    assert first.ran > second.ran


def test_timeline_of_clean_run_has_no_race() -> None:
    assert recorded("smoke/everything.yaml")[1].missing is None


def test_race_with_unknown_tasks_has_no_unordered_tasks() -> None:
    write = Access(lane="h2d", op="fill", step=1, replaced=2)
    read = Access(lane="compute", op="copy", step=3, how="read")
    race, lanes = MissingOrder(first=write, second=read, memory="cells"), (HOST, "compute", "h2d")
    task = Task(0, 1, "copy", 3, 0, 1, (Use("cells"),), ())
    assert unordered_tasks(race, [task], lanes) is None
    assert unordered_tasks(race, [], lanes) is None
    first = Task(0, 2, "fill", 1, 0, 1, (), (Use("cells"),))
    found = unordered_tasks(race, [first, Task(1, 1, "copy", 3, 0, 2, (Use("cells", "0-1"),), ())], lanes)
    assert found is not None
    assert (found.first, found.second) == (0, 1)


def test_has_timeline_only_on_simulated_lanes() -> None:
    assert has_timeline(RunConfig())
    assert has_timeline(RunConfig(device="triton-cpu"))
    assert not has_timeline(RunConfig(device="cuda"))
