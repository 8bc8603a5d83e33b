"""Policies eager, lazy, lane order and random: which ops run when; results never change."""

from collections.abc import Sequence
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.lanes.ops import LANES, Note, device, machine, noting
from tests.workers.lanes.programs import Action, Program, actions, ordered
from workers.judge.races import RaceDetector
from workers.lanes.lane import EventRecord
from workers.lanes.policies import Eager, LaneOrder, Lanes, Lazy, Policy, Random, lane_orders
from workers.lanes.simulated import SimulatedMachine as Machine

ACTORS = ("host", *LANES)
ORDERS = lane_orders(ACTORS)


class Tape:
    """A machine with ops that append their names to `happened`; the host appends its actions."""

    def __init__(self, policy: Policy) -> None:
        self.happened: list[str] = []
        self.machine: Machine = machine(policy)
        self._cell = device(self.machine, "cell").all

    def launch(self, lane: str, name: str) -> None:
        self.machine.lane(lane).launch(noting(name, self.happened), Note(self._cell))

    def record(self, lane: str, name: str) -> None:
        self.machine.event(name).record(self.machine.lane(lane))

    def host(self, name: str) -> None:
        self.machine.decide(name)
        self.happened.append(name)

    def barrier(self, lanes: Sequence[str]) -> None:
        """Block the host until these lanes have run all their ops."""
        events = [self.machine.event(f"end of {lane}") for lane in lanes]
        for event, lane in zip(events, lanes, strict=True):
            event.record(self.machine.lane(lane))
        for event in events:
            event.synchronize()
        self.happened.append("end")


def test_eager_runs_an_op_before_the_next_host_call() -> None:
    tape = Tape(Eager())
    for number, lane in enumerate(("a", "c", "b")):
        tape.launch(lane, f"op{number}")
        tape.host(f"host{number}")
    assert tape.happened == ["op0", "host0", "op1", "host1", "op2", "host2"]


def test_eager_runs_every_op_that_can_run_across_waiting_lanes() -> None:
    tape = Tape(Eager())
    event = tape.machine.event("event")
    tape.launch("d", "d0")
    event.record(tape.machine.lane("d"))
    tape.machine.lane("a").wait(event)
    tape.launch("a", "a0")
    tape.host("host")
    assert tape.happened == ["d0", "a0", "host"]


def test_lazy_runs_nothing_before_the_host_blocks() -> None:
    tape = Tape(Lazy())
    for lane in LANES:
        tape.launch(lane, lane)
        tape.record(lane, f"event {lane}")
        tape.host(f"host {lane}")
    tape.machine.point("point")
    assert tape.happened == [f"host {lane}" for lane in LANES]


def test_lazy_runs_only_ops_that_the_blocked_host_needs() -> None:
    tape = Tape(Lazy())
    first, second, third = (tape.machine.event(name) for name in ("first", "second", "third"))
    a, b, c = (tape.machine.lane(lane) for lane in "abc")
    for lane in LANES:
        tape.launch(lane, f"{lane}0")
    first.record(a)
    b.wait(first)
    tape.launch("b", "b1")
    second.record(b)
    c.wait(second)
    tape.launch("c", "c1")
    third.record(c)
    second.synchronize()
    assert sorted(tape.happened) == ["a0", "b0", "b1"]
    assert tape.happened[-1] == "b1"
    third.synchronize()
    assert tape.happened[3:] == ["c0", "c1"]
    tape.machine.drain()
    assert tape.happened[5:] == ["d0"]


def ran_before_host(order: Sequence[str]) -> tuple[list[str], list[str]]:
    """Launch an op on each lane, advance the host, then block it; return the ops before, after."""
    tape = Tape(LaneOrder(order))
    for lane in LANES:
        tape.launch(lane, lane)
    tape.host("host")
    tape.barrier(LANES)
    cut = tape.happened.index("host")
    return tape.happened[:cut], tape.happened[cut + 1 : -1]


@pytest.mark.parametrize("order", ORDERS, ids=">".join)
def test_lane_order_runs_lanes_by_rank_before_a_less_urgent_host(
    order: tuple[str, ...],
) -> None:
    cut = order.index("host")
    before, after = ran_before_host(order)
    assert sorted(before) == sorted(order[:cut])
    assert after == list(order[cut + 1 :])


def test_lane_order_with_host_first_runs_nothing_before_it_blocks() -> None:
    assert ran_before_host(("host", "c", "a", "d", "b")) == ([], ["c", "a", "d", "b"])


def test_lane_order_with_host_last_runs_as_early_as_eager() -> None:
    tapes = [Tape(LaneOrder(("d", "c", "b", "a", "host"))), Tape(Eager())]
    for tape in tapes:
        for number, lane in enumerate(("a", "d", "b", "a")):
            tape.launch(lane, f"{lane}{number}")
            tape.host(f"host{number}")
    assert tapes[0].happened == tapes[1].happened


def test_lane_order_runs_a_less_urgent_lane_while_a_lane_waits() -> None:
    tape = Tape(LaneOrder(("host", "a", "b", "c", "d")))
    tape.launch("d", "d0")
    landed = tape.machine.event("landed")
    landed.record(tape.machine.lane("d"))
    tape.machine.lane("a").wait(landed)
    tape.launch("a", "a0")
    tape.launch("b", "b0")
    tape.barrier(("a", "b", "d"))
    assert tape.happened == ["b0", "d0", "a0", "end"]


def test_lane_orders_contain_every_pair_in_both_orders() -> None:
    assert len(ORDERS) == len(set(ORDERS)) == 24
    assert all(sorted(order) == sorted(ACTORS) for order in ORDERS)
    pairs = {pair for order in ORDERS for pair in combinations(order, 2)}
    assert pairs == set(permutations(ACTORS, 2))


def test_lane_orders_put_every_lane_first_and_last_once() -> None:
    assert {order[0] for order in ORDERS} == set(ACTORS)
    assert {order[-1] for order in ORDERS} == set(ACTORS)


NAMES = tuple(f"op{number}" for number in range(12))


def random_order(seed: int, names: Sequence[str]) -> list[str]:
    """Return the order in which a random policy runs one op per lane while the host waits."""
    happened: list[str] = []
    made = Machine((*names, "end"), LaneOrder(("host", *names, "end")))
    cell = device(made, "cell").all
    for name in names:
        made.lane(name).launch(noting(name, happened), Note(cell))
        event = made.event(name)
        event.record(made.lane(name))
        made.lane("end").wait(event)
    done = made.event("done")
    done.record(made.lane("end"))
    assert happened == []
    made.policy = Random(seed)
    done.synchronize()
    return happened


def test_random_runs_the_op_with_the_highest_priority_first() -> None:
    for seed in range(20):
        assert random_order(seed, NAMES) == sorted(NAMES, key=lambda name: -Random(seed).urgency("lane", name, 0))


def test_random_gives_an_op_a_new_priority_in_every_step() -> None:
    orders = set()
    for step in range(12):
        tape = Tape(LaneOrder(("host", *LANES)))
        tape.machine.step = step
        for lane in LANES:
            tape.launch(lane, lane)
        end = [tape.machine.event(lane) for lane in LANES]
        for event, lane in zip(end, LANES, strict=True):
            event.record(tape.machine.lane(lane))
        tape.machine.policy = Random(1)
        for event in end:
            event.synchronize()
        first = max(LANES, key=lambda lane: Random(1).urgency("lane", lane, step))
        assert tape.happened[0] == first
        orders.add(first)
    assert len(orders) > 1


def test_random_priorities_do_not_change_if_an_op_is_removed() -> None:
    for seed in range(10):
        everything = random_order(seed, NAMES)
        for removed in NAMES:
            left = random_order(seed, [name for name in NAMES if name != removed])
            assert left == [name for name in everything if name != removed]


def test_random_host_advances_only_with_the_highest_priority() -> None:
    seen = set()
    for seed in range(40):
        policy = Random(seed)
        tape = Tape(policy)
        tape.launch("a", "op")
        tape.host("call")
        tape.machine.drain()
        host, op = policy.urgency("host", "call", 0), policy.urgency("lane", "op", 0)
        assert tape.happened[0] == ("call" if host > op else "op")
        seen.add(tape.happened[0])
    assert seen == {"call", "op"}


def test_random_same_seed_gives_the_same_order() -> None:
    assert random_order(3, NAMES) == random_order(3, NAMES)
    assert len({tuple(random_order(seed, NAMES)) for seed in range(20)}) > 10


def every_policy() -> list[Policy]:
    """Return eager, lazy, the 24 orders and some random policies."""
    return [Eager(), Lazy(), *map(LaneOrder, ORDERS), *map(Random, range(6))]


@settings(max_examples=120)
@given(actions(5))
def test_ordered_program_has_the_same_result_under_every_policy(actions_drawn: list[Action]) -> None:
    program = ordered(actions_drawn)
    detector = RaceDetector(LANES)
    expected = Program(Eager(), detector).run(program)
    assert detector.race is None
    for policy in every_policy():
        assert Program(policy).run(program) == expected, policy.name


class Recomputing:
    """A policy that compares the cached able lanes with `ready()` of each lane."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        able = [*machine.able()]
        assert able == [lane for lane in machine.lanes if lane.ready()]
        self._policy.advance(machine, blocked)


@settings(max_examples=200)
@given(actions(8), st.dictionaries(st.integers(0, 13), st.integers(0, 13), max_size=3))
def test_cached_able_lanes_equal_the_ready_lanes(program: list[Action], held: dict[int, int]) -> None:
    for policy in (Lazy(), LaneOrder(ORDERS[7]), Random(0), Random(1)):
        run = Program(Recomputing(policy))
        run.machine.held = {("stir", step): {("copy", until)} for step, until in held.items()}
        run.run(program)


def test_program_without_waits_has_another_result_under_some_policy() -> None:
    program = [Action(0, lane, 0, 1, 3) for lane in (0, 1, 2)] + [Action(4, 0, 0, 0, 3), Action(3, 3, 3, 0, 3)]
    with_waits = {repr(Program(policy).run(ordered(program))) for policy in every_policy()}
    without = {repr(Program(policy).run(program)) for policy in every_policy()}
    assert len(with_waits) == 1
    assert len(without) > 1


def test_lazy_runs_nothing_after_the_awaited_record() -> None:
    order: list[str] = []
    made = machine(Lazy())
    event, cells, a = made.event("event"), device(made, "cells"), made.lane("a")
    a.launch(noting("before", order), Note(cells.all))
    event.record(a)
    a.launch(noting("after", order), Note(cells.all))
    event.synchronize()
    assert order == ["before"]


def test_lazy_runs_nothing_after_a_record_another_lane_awaits() -> None:
    order: list[str] = []
    made = machine(Lazy())
    event, done, cells = made.event("event"), made.event("done"), device(made, "cells")
    a, b = made.lane("a"), made.lane("b")
    a.launch(noting("a0", order), Note(cells.all))
    event.record(a)
    a.launch(noting("a1", order), Note(cells.all))
    b.wait(event)
    b.launch(noting("b0", order), Note(cells.all))
    done.record(b)
    done.synchronize()
    assert order == ["a0", "b0"]
