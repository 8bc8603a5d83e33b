"""Little programs on four lanes: device ops, copies, host accesses, events; with and without the waits they need."""

from collections import defaultdict
from typing import NamedTuple

from hypothesis import strategies as st

from tests.workers.lanes.ops import LANES, contents, copy, device, pinned, stir
from workers.lanes.lane import Span, Watcher
from workers.lanes.policies import Policy
from workers.lanes.simulated import Machine

NUM_DEVICE, NUM_PINNED, LENGTH = 3, 2, 4
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
        self._events = [self.machine.event(f"event{index}") for index in range(3)]
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
        part = RANGES[action.part]
        pinned_index = NUM_DEVICE + action.target % NUM_PINNED
        event = self._events[action.target % len(self._events)]
        if action.kind <= 3:
            source = action.source % len(self.buffers)
            target = action.target % len(self.buffers)
            if source == target:
                target = (target + 1) % len(self.buffers)
            self._order(action.lane, [Access(source, *part, False), Access(target, *part, True)])
            spans = self._span(source, part), self._span(target, part)
            if action.kind == 3:
                lane.launch(copy, *spans)
            else:
                lane.launch(stir, *spans, step)
            if self._ordered:
                self._done[action.lane].record(lane)
        elif action.kind == 4:
            self._order(None, [Access(pinned_index, *part, True)])
            with self.machine.host(self._span(pinned_index, part), "w") as view:
                view[:] = 100 + step
        elif action.kind == 5:
            self._order(None, [Access(pinned_index, *part, False)])
            with self.machine.host(self._span(pinned_index, part), "r") as view:
                self.read.append(view.tolist())
        elif action.kind == 6:
            event.record(lane)
        elif action.kind == 7:
            lane.wait(event)
        else:
            event.synchronize()

    def _span(self, buffer: int, part: tuple[int, int]) -> Span:
        return self.buffers[buffer].span(*part)

    def _order(self, lane: int | None, accesses: list[Access]) -> None:
        """Wait for every other lane that has ever touched what is about to be touched, if one of the two writes."""
        if not self._ordered:
            return
        for other, past in self._past.items():
            if other != lane and any(conflict(before, access) for before in past for access in accesses):
                if lane is None:
                    self._done[other].synchronize()
                else:
                    self.machine.lanes[lane].wait(self._done[other])
        if lane is not None:
            self._past[lane] += accesses


def conflict(first: Access, second: Access) -> bool:
    """Tell whether two accesses share memory and one of them writes it."""
    overlap = first.low < second.high and second.low < first.high
    return first.buffer == second.buffer and overlap and (first.is_write or second.is_write)
