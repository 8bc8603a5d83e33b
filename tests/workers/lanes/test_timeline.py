"""The timeline recorder: every action once, in order, with the order edges of events."""

import pytest

from tests.workers.lanes.ops import (
    LANES,
    POLICIES,
    Copy,
    Fill,
    Note,
    copy,
    device,
    fill,
    noting,
    pinned,
)
from workers.judge.races import RaceDetector
from workers.lanes.base import OpFailed
from workers.lanes.lane import Deadlock
from workers.lanes.policies import Eager, LaneOrder, Policy
from workers.lanes.simulated import SimulatedMachine
from workers.lanes.timeline import Task, TimelineRecorder, Use
from workers.record.evidence import Access, MissingOrder


def recorded_machine(policy: Policy) -> tuple[SimulatedMachine, TimelineRecorder]:
    """Make a machine of four lanes with a race detector after a recorder."""
    recorder = TimelineRecorder(RaceDetector(LANES))
    return SimulatedMachine(LANES, policy, observer=recorder), recorder


def lanes_and_ops(tasks: list[Task]) -> list[tuple[int, str]]:
    """Return lane and op of tasks in the order in which they ran."""
    return [(task.lane, task.op) for task in sorted(tasks, key=lambda task: task.ran or 0)]


def copied_to_the_host(made: SimulatedMachine) -> None:
    """Fill cells on lane a, then copy them on lane b, wait on the host, and read."""
    cells, output = device(made, "cells"), pinned(made, "output")
    filled, copied = made.event("filled"), made.event("copied")
    made.step = 3
    made.lane("a").launch(fill, Fill(cells.all, 1))
    filled.record(made.lane("a"))
    made.lane("b").wait(filled)
    made.lane("b").launch(copy, Copy(cells.span(0, 2, "head"), output.span(0, 2)))
    copied.record(made.lane("b"))
    copied.synchronize()
    with made.host(output.all, "r") as values:
        assert values.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_timeline_records_event_orders_with_buffers_and_names(policy: Policy) -> None:
    made, recorder = recorded_machine(policy)
    copied_to_the_host(made)
    assert lanes_and_ops(recorder.tasks) == [(1, "fill"), (2, "copy"), (0, "wait copied"), (0, "read")]
    fill_task, copy_task, wait, read = sorted(recorder.tasks, key=lambda task: task.ran or 0)
    assert (fill_task.reads, fill_task.writes) == ((), (Use("cells"),))
    assert (copy_task.reads, copy_task.writes) == ((Use("cells", "head"),), (Use("output", "0-2"),))
    assert read.reads == (Use("output"),)
    assert {task.step for task in recorder.tasks} == {3}
    flows = [(flow.before, flow.after, flow.event) for flow in recorder.flows]
    assert flows == [(fill_task.index, copy_task.index, "filled"), (copy_task.index, wait.index, "copied")]


def test_timeline_shows_an_op_that_runs_after_its_launch() -> None:
    eager, lazy = recorded_machine(Eager())[1], recorded_machine(LaneOrder(("host", *LANES)))[1]
    for recorder, policy in ((eager, Eager()), (lazy, LaneOrder(("host", *LANES)))):
        made = SimulatedMachine(LANES, policy, observer=recorder)
        cells, page = device(made, "cells"), pinned(made, "page")
        made.lane("a").launch(fill, Fill(cells.all, 1))
        with made.host(page.all, "w"):
            pass
        made.drain()
    assert lanes_and_ops(eager.tasks) == [(1, "fill"), (0, "write")]
    assert lanes_and_ops(lazy.tasks) == [(0, "write"), (1, "fill")]
    assert [(task.enqueued, task.ran) for task in lazy.tasks if task.lane] == [(0, 2)]


def test_timeline_records_ops_that_use_lane_memory_only() -> None:
    made, recorder = recorded_machine(Eager())
    own = made.buffer("own", pinned(made, "other")._data.copy(), lane="a")
    made.lane("a").launch(fill, Fill(own.all, 1))
    assert [(task.op, task.writes, task.ran) for task in recorder.tasks] == [("fill", (Use("own"),), 1)]


def test_timeline_records_ops_that_raise_or_never_run() -> None:
    made, recorder = recorded_machine(LaneOrder(("host", *LANES)))
    cells = device(made, "cells")

    def broken(a: Note) -> None:
        raise RuntimeError("broken")

    made.lane("a").launch(broken, Note(cells.all))
    made.lane("a").launch(noting("after", []), Note(cells.all))
    with pytest.raises(OpFailed):
        made.drain()
    assert [(task.op, task.ran) for task in recorder.tasks] == [("broken", 1), ("after", None)]


def test_timeline_recorder_forwards_every_call_to_the_watcher() -> None:
    made, recorder = recorded_machine(Eager())
    copied_to_the_host(made)
    cells = made.buffers["cells"]
    made.lane("a").launch(fill, Fill(cells.all, 2))
    made.lane("c").launch(fill, Fill(cells.all, 3))
    detector = recorder.watcher
    assert isinstance(detector, RaceDetector)
    first, second = (Access(lane=lane, op="fill", step=3) for lane in ("a", "c"))
    assert detector.race == MissingOrder(first=first, second=second, memory="cells")


def test_timeline_of_a_deadlocked_host_keeps_its_tasks() -> None:
    made, recorder = recorded_machine(Eager())
    first, second = made.event("first"), made.event("second")
    cells = device(made, "cells")
    made.lane("a").launch(fill, Fill(cells.all, 1))
    first.record(made.lane("a"))
    first.record_newest.done = False  # type: ignore[union-attr]
    made.lane("b").wait(first)
    made.lane("b").launch(fill, Fill(cells.all, 2))
    second.record(made.lane("b"))
    with pytest.raises(Deadlock):
        second.synchronize()
    assert [(task.lane, task.ran) for task in recorder.tasks] == [(1, 1), (2, None)]
