"""Policies: the order in which lanes advance, with labelled exceptions.

A policy is called before every call of the host takes effect. It runs device ops, one at a time, and returns when the
host is to go on; while the host is blocked on a record it returns when that record is done.
"""

from collections.abc import Callable, Sequence, Sized
from itertools import permutations
from typing import Protocol, TypeVar

from scenarios.draw import words
from workers.lanes.lane import EventRecord

HOST = "host"
_NUM_LANES = 5
Name = TypeVar("Name", bound=str)


class RunnableLane(Protocol):
    """A device lane, as a policy sees it; its queue is empty when it has nothing to do."""

    name: str

    @property
    def queue(self) -> Sized:
        """The work that is enqueued."""

    def ready(self) -> bool:
        """Tell whether the op at the head of the lane may run now."""

    def run(self) -> None:
        """Run the op at the head of the lane."""

    def head(self) -> tuple[str, int]:
        """Return name and step of the op at the head."""

    def blocking(self) -> EventRecord | None:
        """Return the record that the lane waits for, if it waits."""


class Lanes(Protocol):
    """The machine, as a policy sees it."""

    host_label: str
    step: int
    pending: int

    @property
    def lanes(self) -> Sequence[RunnableLane]:
        """All lanes of the device."""

    def able(self) -> Sequence[RunnableLane]:
        """Return the lanes whose head op may run now."""

    def stuck(self, record: EventRecord) -> None:
        """Raise `Deadlock`, or release what is held back."""


class Policy(Protocol):
    """Choice of the lane or host that advances next."""

    name: str

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run device ops until the host is to go on."""


class Eager:
    """The device runs as early as it can."""

    name = "eager"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run everything that can run."""
        while True:
            pending = -1
            while machine.pending != pending:
                pending = machine.pending
                for lane in machine.lanes:
                    while lane.queue and lane.ready():
                        lane.run()
            if blocked is None or blocked.done:
                return
            machine.stuck(blocked)


class Lazy:
    """The device runs as late as it can: only what the blocked host waits for, and what that needs."""

    name = "lazy"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run what leads to the record the host is blocked on."""
        while blocked is not None and not blocked.done:
            record, lane = blocked, machine.lanes[blocked.lane]
            for _ in machine.lanes:
                if lane.ready() or record.done:
                    break
                waited = lane.blocking()
                if waited is None:
                    break
                record, lane = waited, machine.lanes[waited.lane]
            if record.done:
                continue
            if lane.ready():
                lane.run()
                continue
            # What is needed is held back: another lane may release it.
            able = machine.able()
            if able:
                able[0].run()
            else:
                machine.stuck(blocked)


class LaneOrder:
    """A fixed priority of the host and the lanes; the most urgent that can advance does."""

    def __init__(self, order: Sequence[str]) -> None:
        self.name = "lane_order " + ">".join(order)
        self.rank = {lane: rank for rank, lane in enumerate(order)}

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run lanes that are more urgent than the host, or any while the host is blocked."""

        def choose(able: Sequence[RunnableLane]) -> RunnableLane | None:
            lane = able[0] if len(able) == 1 else min(able, key=lambda lane: self.rank[lane.name])
            return None if blocked is None and self.rank[HOST] < self.rank[lane.name] else lane

        _advance_chosen(machine, blocked, choose)


class Random:
    """A fresh labelled priority for every op and every call of the host (partial order sampling)."""

    def __init__(self, seed: int) -> None:
        self.name = f"random {seed}"
        self.seed = seed
        # Cached: the op at the head of a lane is looked up again at every call of the host.
        self._drawn: dict[tuple[str, str, int], tuple[int, int, int, int]] = {}

    def urgency(self, site: str, label: str, step: int) -> int:
        """Return the 32 bits that an op (site `lane`) or a call of the host (`host`) drew: four steps share a draw."""
        key = site, label, step >> 2
        drawn = self._drawn.get(key)
        if drawn is None:
            drawn = self._drawn[key] = words(self.seed, *key)
        return drawn[step & 3]

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run lanes whose head op drew more than the host's call did, or any while the host is blocked."""
        host: int | None = None

        def choose(able: Sequence[RunnableLane]) -> RunnableLane | None:
            nonlocal host
            if blocked is not None and len(able) == 1:
                return able[0]
            urgency, _, lane = max([(self.urgency("lane", *lane.head()), lane.name, lane) for lane in able])
            if blocked is not None:
                return lane
            if host is None:
                host = self.urgency("host", machine.host_label, machine.step)
            return None if host > urgency else lane

        _advance_chosen(machine, blocked, choose)


def _advance_chosen(
    machine: Lanes, blocked: EventRecord | None, choose: Callable[[Sequence[RunnableLane]], RunnableLane | None]
) -> None:
    """Run the lane that is chosen among those able, until the host is (None) or nothing can run."""
    while True:
        able = machine.able()
        if blocked is not None and blocked.done:
            return
        if able:
            lane = choose(able)
            if lane is None:
                return
            lane.run()
        elif blocked is None:
            return
        else:
            machine.stuck(blocked)


def lane_orders(lanes: Sequence[Name]) -> list[tuple[Name, ...]]:
    """Return 24 orders of five lanes (every fifth permutation): every pair occurs in both orders."""
    assert len(lanes) == _NUM_LANES, f"{len(lanes)} lanes"
    return list(permutations(lanes))[::5]
