"""The simulated machine: FIFO lanes, events as in CUDA, memory with access checks."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.workers.lanes.ops import (
    LANES,
    POLICIES,
    Copy,
    Fill,
    Note,
    Stir,
    contents,
    copy,
    device,
    fill,
    lazy_machine,
    machine,
    noting,
    pinned,
    stir,
)
from workers.lanes.base import OpFailed
from workers.lanes.lane import Deadlock, EventRecord
from workers.lanes.policies import Eager, Lazy, Policy


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_lane_runs_its_ops_in_enqueued_order(policy: Policy) -> None:
    order: list[str] = []
    made = machine(policy)
    cells = {name: device(made, name) for name in LANES}
    for number in range(6):
        for name in LANES:
            made.lane(name).launch(noting(f"{name}{number}", order), Note(cells[name].all))
    made.drain()
    assert len(order) == 24
    for name in LANES:
        assert [op for op in order if op[0] == name] == [f"{name}{number}" for number in range(6)]


@pytest.mark.parametrize(("policy", "seen"), [(Eager(), 1), (Lazy(), 2)], ids=["eager", "lazy"])
def test_copy_reads_its_source_when_it_runs(policy: Policy, seen: int) -> None:
    made = machine(policy)
    staging, target = pinned(made, "staging"), device(made, "target")
    with made.host(staging.all, "w") as view:
        view[:] = 1
    made.lane("a").launch(copy, Copy(staging.all, target.all))
    with made.host(staging.all, "w") as view:
        view[:] = 2
    assert contents(made, target.all) == [seen] * 4


def test_wait_uses_the_record_that_is_newest_when_enqueued() -> None:
    order: list[str] = []
    made = lazy_machine()
    event, cells = made.event("event"), device(made, "cells")
    a, b = made.lane("a"), made.lane("b")
    done = made.event("done")
    a.launch(noting("a0", order), Note(cells.all))
    event.record(a)
    b.wait(event)
    a.launch(noting("a1", order), Note(cells.all))
    event.record(a)
    b.launch(noting("b0", order), Note(cells.all))
    done.record(b)
    done.synchronize()
    assert order == ["a0", "b0"]


def test_wait_after_a_second_record_uses_the_second_record() -> None:
    order: list[str] = []
    made = lazy_machine()
    event, cells = made.event("event"), device(made, "cells")
    a, b = made.lane("a"), made.lane("b")
    done = made.event("done")
    for number in range(2):
        a.launch(noting(f"a{number}", order), Note(cells.all))
        event.record(a)
    b.wait(event)
    b.launch(noting("b0", order), Note(cells.all))
    done.record(b)
    done.synchronize()
    assert order == ["a0", "a1", "b0"]


def test_event_may_be_recorded_on_another_lane() -> None:
    order: list[str] = []
    made = lazy_machine()
    event, cells = made.event("event"), device(made, "cells")
    for name in ("a", "b"):
        made.lane(name).launch(noting(name, order), Note(cells.all))
        event.record(made.lane(name))
    event.synchronize()
    assert order == ["b"]


def test_wait_for_an_unrecorded_event_returns_at_once() -> None:
    order: list[str] = []
    made = lazy_machine()
    never, done, cells = made.event("never"), made.event("done"), device(made, "cells")
    never.synchronize()
    made.lane("b").wait(never)
    made.lane("b").launch(noting("b0", order), Note(cells.all))
    never.record(made.lane("a"))
    done.record(made.lane("b"))
    done.synchronize()
    assert order == ["b0"]
    assert made.seen_waits == {("record", "never"), ("record", "done"), ("host", "done")}


def test_synchronize_waits_for_ops_before_the_record_only() -> None:
    order: list[str] = []
    made = lazy_machine()
    event, cells = made.event("event"), device(made, "cells")
    a = made.lane("a")
    a.launch(noting("before", order), Note(cells.all))
    event.record(a)
    a.launch(noting("after", order), Note(cells.all))
    event.synchronize()
    assert order == ["before"]
    event.synchronize()
    assert order == ["before"]
    made.drain()
    assert order == ["before", "after"]


def test_the_host_cannot_reach_device_memory() -> None:
    made = machine()
    for buffer in (device(made, "kv"), made.buffer("states", np.zeros(4, dtype=np.int64), lane="a")):
        for mode in ("r", "w"):
            with pytest.raises(PermissionError, match=f"{buffer.name} is device memory"), made.host(buffer.all, mode):
                pass


def test_host_read_view_of_pinned_memory_is_read_only() -> None:
    made = machine()
    staging = pinned(made, "staging")
    with made.host(staging.span(1, 3), "w") as view:
        view[:] = 5
    with made.host(staging.all, "r") as view:
        assert view.tolist() == [0, 5, 5, 0]
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1


@pytest.mark.parametrize("value", [np.int64(3), True, 3.0, np.zeros(4, dtype=np.int64)], ids=lambda v: type(v).__name__)
def test_launch_with_a_non_int_argument_raises(value: Any) -> None:
    made = machine()
    with pytest.raises((TypeError, ValueError)):
        made.lane("a").launch(fill, Fill(device(made, "cells").all, value))


@pytest.mark.parametrize("value", [np.zeros(4, dtype=np.int64), [0, 0, 0, 0], 3], ids=lambda v: type(v).__name__)
def test_launch_with_an_array_instead_of_a_span_raises(value: Any) -> None:
    made = machine()
    with pytest.raises(TypeError):
        made.lane("a").launch(copy, Copy(value, device(made, "cells").all))


def test_launch_with_a_buffer_instead_of_a_span_raises() -> None:
    made = machine()
    cells: Any = device(made, "cells")
    with pytest.raises(TypeError, match="op fill, destination: expected a span of a buffer, got Buffer"):
        made.lane("a").launch(fill, Fill(cells, 3))


def test_launch_with_the_arguments_of_another_op_raises() -> None:
    made = machine()
    wrong: Any = Note(device(made, "cells").all)
    with pytest.raises(TypeError, match="op fill: expected Fill, got Note"):
        made.lane("a").launch(fill, wrong)


def test_op_that_writes_an_input_raises_with_op_and_step() -> None:
    def scribble(a: Copy) -> None:
        a.source[0] = 1

    made = lazy_machine()
    made.step = 7
    made.lane("a").launch(scribble, Copy(device(made, "source").all, device(made, "destination").all))
    with pytest.raises(OpFailed, match=r"op scribble of step 7: ValueError: .*read-only") as failed:
        made.drain()
    assert isinstance(failed.value.__cause__, ValueError)


def test_op_writes_only_its_spans() -> None:
    def one_too_many(a: Fill) -> None:
        a.destination[2] = 1

    made = lazy_machine()
    cells = device(made, "cells", 6)
    made.lane("a").launch(fill, Fill(cells.span(2, 4), 9))
    assert contents(made, cells.all) == [0, 0, 9, 9, 0, 0]
    made.lane("a").launch(one_too_many, Fill(cells.span(2, 4), 1))
    with pytest.raises(OpFailed, match="IndexError"):
        made.drain()
    assert contents(made, cells.all) == [0, 0, 9, 9, 0, 0]


def test_op_reads_the_old_values_of_an_inout_span() -> None:
    made = machine()
    source, target = device(made, "source"), device(made, "target")
    made.lane("a").launch(fill, Fill(source.all, 2))
    made.lane("a").launch(fill, Fill(target.all, 10))
    made.lane("a").launch(stir, Stir(source.all, target.all, 1))
    assert contents(made, target.all) == [10 * 3 + 8 * 5 + 1] * 4


def test_memory_of_one_lane_raises_on_another_lane() -> None:
    made = machine()
    private = made.buffer("private", np.zeros(4, dtype=np.int64), lane="a")
    made.lane("a").launch(fill, Fill(private.all, 1))
    with pytest.raises(PermissionError, match="op fill on b: private may be used on a only"):
        made.lane("b").launch(fill, Fill(private.all, 2))
    with pytest.raises(PermissionError, match="op copy on b: private may be used on a only"):
        made.lane("b").launch(copy, Copy(private.all, device(made, "cells").all))
    assert contents(made, private.all) == [1] * 4


def test_pinned_memory_with_a_lane_raises() -> None:
    with pytest.raises(AssertionError, match="pinned memory is the host's too"):
        machine().buffer("private", np.zeros(4, dtype=np.int64), pinned=True, lane="a")


class Looks:
    """Records the values that captures read, in the order in which captures run."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def named(self, name: str) -> Any:
        def look(view: NDArray[Any]) -> None:
            assert not view.flags.writeable
            self.seen.append((name, int(view[0])))

        return look


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_capture_sees_ops_enqueued_before_it_only(policy: Policy) -> None:
    made, looks = machine(policy), Looks()
    cells, a = device(made, "cells"), made.lane("a")
    for number in range(1, 4):
        a.launch(fill, Fill(cells.all, number))
        a.capture(looks.named("first"), cells.all)
        a.capture(looks.named("second"), cells.all)
    made.drain()
    assert looks.seen == [(name, number) for number in range(1, 4) for name in ("first", "second")]


def test_capture_is_not_a_decision_point() -> None:
    made, looks = lazy_machine(), Looks()
    cells, a = device(made, "cells"), made.lane("a")
    a.launch(fill, Fill(cells.all, 1))
    before = made.pending
    a.capture(looks.named("capture"), cells.all)
    assert made.pending == before
    assert looks.seen == []
    made.drain()
    assert looks.seen == [("capture", 1)]


def test_eager_machine_runs_an_op_at_its_launch() -> None:
    eager, looks = machine(), Looks()
    a, cells = eager.lane("a"), device(eager, "cells")
    a.launch(fill, Fill(cells.all, 1))
    assert eager.pending == 0
    a.capture(looks.named("capture"), cells.all)
    assert looks.seen == [("capture", 1)]


def test_capture_on_an_idle_lane_reads_at_once() -> None:
    made, looks = machine(), Looks()
    cells, a = device(made, "cells"), made.lane("a")
    a.launch(fill, Fill(cells.all, 4))
    made.drain()
    a.capture(looks.named("capture"), cells.all)
    assert looks.seen == [("capture", 4)]


def test_capture_after_a_record_keeps_stream_order() -> None:
    made, looks = lazy_machine(), Looks()
    cells, a, event = device(made, "cells"), made.lane("a"), made.event("event")
    a.launch(fill, Fill(cells.all, 1))
    event.record(a)
    a.capture(looks.named("capture"), cells.all)
    a.launch(fill, Fill(cells.all, 2))
    assert looks.seen == []
    made.drain()
    assert looks.seen == [("capture", 1)]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_endless_wait_raises_deadlock_with_all_waits(policy: Policy) -> None:
    # Public calls cannot build a deadlock, because a wait uses a record that is already in a lane.
    made = machine(policy)
    never, event, cells = made.event("never"), made.event("event"), device(made, "cells")
    never.record_newest = EventRecord(made.lane("c").index, step=5)
    made.lane("b").wait(never)
    made.lane("b").launch(fill, Fill(cells.all, 1))
    event.record(made.lane("b"))
    with pytest.raises(Deadlock) as of_host:
        event.synchronize()
    assert (of_host.value.host, of_host.value.waits) == ("b", (("b", "c", 5),))
    with pytest.raises(Deadlock) as of_drain:
        made.drain()
    assert (of_drain.value.host, of_drain.value.waits) == (None, (("b", "c", 5),))


def test_removed_wait_record_or_synchronize_has_no_effect() -> None:
    order: list[str] = []
    removed = {("b", "event"), ("host", "other"), ("record", "gone")}
    made = machine(Lazy(), without=frozenset(removed))
    event, other, gone, done = (made.event(name) for name in ("event", "other", "gone", "done"))
    a, b, cells = made.lane("a"), made.lane("b"), device(made, "cells")
    a.launch(noting("a0", order), Note(cells.all))
    event.record(a)
    other.record(a)
    gone.record(a)
    gone.synchronize()
    other.synchronize()
    assert order == []
    b.wait(event)
    b.launch(noting("b0", order), Note(cells.all))
    done.record(b)
    done.synchronize()
    assert order == ["b0"]
    assert made.seen_waits == {("record", "event"), ("record", "other"), ("record", "done"), ("host", "done")}


def test_blame_keeps_the_last_writers_newest_first() -> None:
    made = machine(blame=True)
    staging, cells = pinned(made, "staging"), device(made, "cells")
    for step in range(4):
        made.step = step
        made.lane("b").launch(fill, Fill(cells.all, step))
        made.lane("b").launch(copy, Copy(cells.all, staging.all))
    with made.host(staging.all, "w"):
        pass
    made.drain()
    assert cells.writers[:2] == (("b", "fill", 3), ("b", "fill", 2))
    assert staging.writers[:2] == (("host", "write staging", 3), ("b", "copy", 3))
