"""Little programs on four lanes: device ops, copies, host accesses, events; with and without the waits they need."""

from collections import defaultdict
from typing import NamedTuple

from hypothesis import strategies as st

from tests.workers.lanes.ops import LANES, contents, copy, device, pinned, stir
from workers.lanes.lane import Watcher
from workers.lanes.policies import Policy
from workers.lanes.simulated import Machine

NUM_DEVICE, NUM_PINNED, NUM_EVENTS, LENGTH = 3, 2, 3, 4
NUM_BUFFERS = NUM_DEVICE + NUM_PINNED
RANGES = ((0, 2), (2, 4), (1, 3), (0, 4))


class Action(NamedTuple):
    """One action: `kind` 0-2 stir, 3 copy, 4 host write, 5 host read, 6 record, 7 wait, 8 synchronize.

    `lane` is who does it, `source` and `target` choose buffers or an event, `part` the range.
    """

    kind: int
    lane: int
    source: int
    target: int
    part: int


class Access(NamedTuple):
    """What an action does to a range of a buffer."""

    buffer: int
    low: int
    high: int
    is_write: bool


def actions(with_events: bool) -> st.SearchStrategy[list[Action]]:
    """Return a strategy for programs; without events, the ones that are needed are put in when they run."""
    kind = st.integers(0, 8 if with_events else 5)
    small = st.integers(0, 7)
    action = st.builds(Action, kind, st.integers(0, len(LANES) - 1), small, small, st.integers(0, len(RANGES) - 1))
    return st.lists(action, min_size=2, max_size=14)


class Program:
    """A program on one machine; with `ordered`, every action waits for the earlier ones it conflicts with."""

    def __init__(self, policy: Policy, ordered: bool, watcher: Watcher | None = None) -> None:
        self.machine = Machine(LANES, policy, watcher)
        buffers = [device(self.machine, f"device{index}", LENGTH) for index in range(NUM_DEVICE)]
        self.buffers = buffers + [pinned(self.machine, f"pinned{index}", LENGTH) for index in range(NUM_PINNED)]
        self.read: list[list[int]] = []
        self._ordered = ordered
        self._events = [self.machine.event(f"event{index}") for index in range(NUM_EVENTS)]
        self._past: dict[int, list[Access]] = defaultdict(list)
        self._done = {lane: self.machine.event(f"done{lane}") for lane in range(len(LANES))}

    def run(self, program: list[Action]) -> tuple[list[list[int]], list[list[int]]]:
        """Return what every buffer holds at the end, and what the host read on the way."""
        for step, action in enumerate(program):
            self.machine.step = step
            self._act(action, step)
        return [contents(self.machine, buffer.all) for buffer in self.buffers], self.read

    def _act(self, action: Action, step: int) -> None:
        lane = self.machine.lanes[action.lane]
        event = self._events[action.target % NUM_EVENTS]
        self._order(action)
        spans = [self.buffers[access.buffer].span(access.low, access.high) for access in accesses_of(action)]
        if action.kind <= 3:
            if action.kind == 3:
                lane.launch(copy, *spans)
            else:
                lane.launch(stir, *spans, step)
            if self._ordered:
                self._done[action.lane].record(lane)
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

    def _order(self, action: Action) -> None:
        """Wait for every other lane that has ever touched what is about to be touched, if one of the two writes."""
        if not self._ordered:
            return
        accesses = accesses_of(action)
        is_host = action.kind > 3
        for other, past in self._past.items():
            same = other == action.lane and not is_host
            if not same and any(conflict(before, access) for before in past for access in accesses):
                if is_host:
                    self._done[other].synchronize()
                else:
                    self.machine.lanes[action.lane].wait(self._done[other])
        if not is_host:
            self._past[action.lane] += accesses


def accesses_of(action: Action) -> list[Access]:
    """Return what an action reads and writes; events reach no memory."""
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
    """Tell whether two accesses share memory and one of them writes it."""
    overlap = first.low < second.high and second.low < first.high
    return first.buffer == second.buffer and overlap and (first.is_write or second.is_write)


def has_race(program: list[Action]) -> bool:
    """Tell by definition: two conflicting accesses, and no path from one to the other.

    Every action is a node of the host's chain; what it enqueues is another, behind it and behind its lane.
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
