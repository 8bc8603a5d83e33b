"""Random programs on four lanes: ops, copies, host accesses, events, with and without waits."""

from typing import NamedTuple

from hypothesis import strategies as st

from tests.workers.lanes.ops import LANES, Copy, Stir, contents, copy, device, pinned, stir
from workers.lanes.lane import Watcher
from workers.lanes.policies import Policy
from workers.lanes.simulated import SimulatedMachine as Machine

NUM_DEVICE, NUM_PINNED, NUM_EVENTS, LENGTH = 3, 2, 7, 4
NUM_BUFFERS = NUM_DEVICE + NUM_PINNED
DONE = NUM_EVENTS - len(LANES)  # the first of the events that `ordered` keeps for each lane
RANGES = ((0, 2), (2, 4), (1, 3), (0, 4))


class Action(NamedTuple):
    """One action; `kind`: 0-2 stir, 3 copy, 4 host write, 5 host read, 6 record, 7 wait, 8 sync.

    `lane` performs it, `source` and `target` select buffers or an event, `part` the range.
    """

    kind: int
    lane: int
    source: int
    target: int
    part: int


class Access(NamedTuple):
    """A read or write of a buffer range by one action."""

    buffer: int
    low: int
    high: int
    is_write: bool


def actions(kind_max: int) -> st.SearchStrategy[list[Action]]:
    """Return a strategy for programs: `kind_max` 5 generates no events, 8 all kinds of actions."""
    small = st.integers(0, 7)
    lane, part = st.integers(0, len(LANES) - 1), st.integers(0, len(RANGES) - 1)
    return st.lists(st.builds(Action, st.integers(0, kind_max), lane, small, small, part), min_size=2, max_size=14)


def nearly_ordered() -> st.SearchStrategy[list[Action]]:
    """Return a strategy for programs with all waits they need, except at most two."""
    return st.builds(ordered, actions(8), st.frozensets(st.integers(0, 12), max_size=2))


class Program:
    """A machine on which one program runs."""

    def __init__(self, policy: Policy, watcher: Watcher | None = None) -> None:
        self.machine = Machine(LANES, policy, watcher)
        buffers = [device(self.machine, f"device{index}", LENGTH) for index in range(NUM_DEVICE)]
        self.buffers = buffers + [pinned(self.machine, f"pinned{index}", LENGTH) for index in range(NUM_PINNED)]
        self.read: list[list[int]] = []
        self._events = [self.machine.event(f"event{index}") for index in range(NUM_EVENTS)]

    def run(self, program: list[Action]) -> tuple[list[list[int]], list[list[int]]]:
        """Return the final values of every buffer and the values that the host read."""
        for step, action in enumerate(program):
            self.machine.step = step
            self._act(action, step)
        return [contents(self.machine, buffer.all) for buffer in self.buffers], self.read

    def _act(self, action: Action, step: int) -> None:
        lane = self.machine.lanes[action.lane]
        event = self._events[action.target % NUM_EVENTS]
        spans = [self.buffers[access.buffer].span(access.low, access.high) for access in accesses_of(action)]
        if action.kind <= 3:
            if action.kind == 3:
                lane.launch(copy, Copy(*spans))
            else:
                source, target = spans
                lane.launch(stir, Stir(source, target, step))
        elif action.kind == 4:
            with self.machine.host(spans[0], "w") as view:
                view[:] = 100 + step
        elif action.kind == 5:
            with self.machine.host(spans[0], "r") as view:
                self.read.append(view.tolist())
        elif action.kind == 6:
            event.record(lane)
        elif action.kind == 7:
            lane.wait(event)
        else:
            event.synchronize()


def accesses_of(action: Action) -> list[Access]:
    """Return the memory that an action reads and writes; none for events."""
    low, high = RANGES[action.part]
    if action.kind <= 3:
        source, target = action.source % NUM_BUFFERS, action.target % NUM_BUFFERS
        if source == target:
            target = (target + 1) % NUM_BUFFERS
        return [Access(source, low, high, False), Access(target, low, high, True)]
    if action.kind <= 5:
        return [Access(NUM_DEVICE + action.target % NUM_PINNED, low, high, action.kind == 4)]
    return []


def conflict(first: Access, second: Access) -> bool:
    """Return whether two accesses share memory and at least one writes it."""
    overlap = first.low < second.high and second.low < first.high
    return first.buffer == second.buffer and overlap and (first.is_write or second.is_write)


def ordered(program: list[Action], left_out: frozenset[int] = frozenset()) -> list[Action]:
    """Return the program with waits for all conflicting lanes, except for some left out."""
    made: list[Action] = []
    past: list[list[Access]] = [[] for _ in LANES]
    num_waits = 0
    for action in program:
        is_host = action.kind > 3
        for other, accesses in enumerate(past):
            is_same = other == action.lane and not is_host
            if not is_same and any(conflict(before, access) for before in accesses for access in accesses_of(action)):
                if num_waits not in left_out:
                    made.append(Action(8 if is_host else 7, action.lane, 0, DONE + other, 0))
                num_waits += 1
        made.append(action)
        if not is_host:
            past[action.lane] += accesses_of(action)
            made.append(Action(6, action.lane, 0, DONE + action.lane, 0))
    return made


def has_race(program: list[Action]) -> bool:
    """Return by definition whether two accesses conflict without a path from one to the other.

    Every action is a node of the host's chain; its enqueued task is a node after it and after its lane's last task.
    """
    before: list[set[int]] = []
    accesses: list[tuple[int, Access]] = []
    host: set[int] = set()
    lanes: list[set[int]] = [set() for _ in LANES]
    events: list[set[int] | None] = [None] * NUM_EVENTS
    for action in program:
        event = action.target % NUM_EVENTS
        node = len(before)
        if action.kind <= 3 or action.kind == 6:
            before.append(lanes[action.lane] | host)
            lanes[action.lane] = before[node] | {node}
        else:
            known = events[event] if action.kind in (7, 8) else None
            if action.kind == 7:
                lanes[action.lane] |= known or set()
            else:
                host = host | (known or set())
            before.append(set(host))
            host = host | ({node} if action.kind in (4, 5) else set())
        if action.kind == 6:
            events[event] = set(lanes[action.lane])
        accesses += [(node, access) for access in accesses_of(action)]
    return any(
        first != second and first not in before[second] and conflict(one, other)
        for index, (second, other) in enumerate(accesses)
        for first, one in accesses[:index]
    )
