"""Held ops: exceptions to a policy that delay one op and never deadlock."""

import pytest

from tests.workers.lanes.ops import POLICIES, Note, contents, device, machine, noting
from workers.lanes.base import HeldOp
from workers.lanes.policies import Eager, LaneOrder, Lazy, Policy, Random


def held_run(held: HeldOp, policy: Policy) -> list[str]:
    """Run ops x and y on two lanes with a held op and host point p; return the order of events."""
    happened: list[str] = []
    made = machine(policy, held=[held])
    cells, done = device(made, "cells"), made.event("done")
    a, b = made.lane("a"), made.lane("b")
    a.launch(noting("x", happened), Note(cells.all))
    done.record(a)
    made.decide("first")
    b.launch(noting("y", happened), Note(cells.all))
    made.decide("second")
    happened.append("p")
    made.point("p")
    made.decide("third")
    done.synchronize()
    happened.append("synchronized")
    made.drain()
    return happened


def test_held_op_waits_for_a_point_of_the_host() -> None:
    assert held_run(HeldOp(("none", 0), ("p", 0)), Eager()) == ["x", "y", "p", "synchronized"]
    assert held_run(HeldOp(("x", 0), ("p", 0)), Eager()) == ["y", "p", "x", "synchronized"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_held_op_may_run_after_its_point(policy: Policy) -> None:
    made = machine(policy, held=[HeldOp(("x", 0), ("p", 0))])
    made.lane("a").launch(noting("x", []), Note(device(made, "cells").all))
    assert list(made.able()) == []
    made.point("p")
    assert list(made.able()) == [made.lane("a")]


def test_held_op_waits_for_another_op() -> None:
    assert held_run(HeldOp(("x", 0), ("y", 0)), Eager()) == ["y", "x", "p", "synchronized"]


def test_point_or_op_of_another_step_releases_no_held_op() -> None:
    for until in (("p", 1), ("y", 1)):
        assert held_run(HeldOp(("x", 0), until), Eager()) == ["y", "p", "x", "synchronized"]
    made = machine(held=[HeldOp(("x", 0), ("p", 1))])
    happened: list[str] = []
    made.lane("a").launch(noting("x", happened), Note(device(made, "cells").all))
    made.point("p")
    made.decide("next")
    assert happened == []
    made.step = 1
    made.point("p")
    made.decide("next")
    assert happened == ["x"]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_hold_of_an_unknown_op_changes_nothing(policy: Policy) -> None:
    free = held_run(HeldOp(("x", 1), ("x", 1)), policy)
    for held in (HeldOp(("absent", 0), ("p", 0)), HeldOp(("x", 9), ("y", 0)), HeldOp(("y", 3), ("absent", 0))):
        assert held_run(held, policy) == free


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_hold_is_released_if_the_host_would_block_for_ever(policy: Policy) -> None:
    for until in (("absent", 0), ("p", 1), ("x", 0)):
        happened = held_run(HeldOp(("x", 0), until), policy)
        assert happened.index("x") < happened.index("synchronized")
        assert sorted(happened) == ["p", "synchronized", "x", "y"]


def test_hold_with_a_passed_end_holds_nothing() -> None:
    happened: list[str] = []
    made = machine(held=[HeldOp(("x", 0), ("p", 0))])
    made.point("p")
    made.lane("a").launch(noting("x", happened), Note(device(made, "cells").all))
    made.decide("next")
    assert happened == ["x"]


def test_held_op_delays_later_ops_of_its_lane_only() -> None:
    happened: list[str] = []
    made = machine(held=[HeldOp(("x", 2), ("p", 3))])
    cells = device(made, "cells")
    for step in (2, 3):
        made.step = step
        made.lane("a").launch(noting("x", happened), Note(cells.all))
        made.lane("b").launch(noting("y", happened), Note(cells.all))
    made.decide("next")
    assert happened == ["y", "y"]
    made.point("p")
    made.decide("next")
    assert happened == ["y", "y", "x", "x"]


def test_drain_runs_held_ops() -> None:
    def touch(a: Note) -> None:
        a.cell[:] += 1

    made = machine(held=[HeldOp(("touch", 0), ("absent", 0))])
    cells = device(made, "cells")
    made.lane("a").launch(touch, Note(cells.all))
    made.decide("next")
    assert contents(made, cells.all) == [1] * 4


@pytest.mark.parametrize(
    "policy",
    [Eager(), Lazy(), LaneOrder(("host", "a", "b", "c", "d")), LaneOrder(("host", "d", "c", "b", "a")), Random(1)],
    ids=lambda policy: str(policy.name),
)
def test_hold_lasts_until_the_other_op_ran_even_if_the_host_waits(policy: Policy) -> None:
    order: list[str] = []
    made = machine(policy, held=[HeldOp(("x", 0), ("y", 0))])
    cells, done = device(made, "cells"), made.event("done")
    made.lane("a").launch(noting("x", order), Note(cells.all))
    done.record(made.lane("a"))
    made.lane("b").launch(noting("y", order), Note(cells.all))
    done.synchronize()
    made.drain()
    assert order == ["y", "x"]


def test_two_holds_of_one_op_both_apply() -> None:
    order: list[str] = []
    made = machine(held=[HeldOp(("x", 0), ("p", 0)), HeldOp(("x", 0), ("q", 0))])
    made.lane("a").launch(noting("x", order), Note(device(made, "cells").all))
    made.point("q")
    made.point("next")
    assert order == []
    made.point("p")
    made.point("next")
    assert order == ["x"]
