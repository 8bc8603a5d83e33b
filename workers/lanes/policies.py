"""Policies: the order in which the host and the lanes advance.

A policy is called before every host call takes effect. It runs device ops, one at a time, and returns when it is the
host's turn. If the host waits for an event record, it returns only when that record is done.
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
    """A lane as a policy sees it; an empty queue means that there is nothing to run."""

    name: str

    @property
    def queue(self) -> Sized:
        """The enqueued work."""

    def ready(self) -> bool:
        """Return whether the op at the head of the queue may run now."""

    def run(self) -> None:
        """Run the op at the head of the queue."""

    def head(self) -> tuple[str, int]:
        """Return name and step of the op at the head of the queue."""

    def blocking(self) -> EventRecord | None:
        """Return the event record that the lane waits for; None if it does not wait."""


class Lanes(Protocol):
    """The machine as a policy sees it."""

    host_label: str
    step: int
    pending: int

    @property
    def lanes(self) -> Sequence[RunnableLane]:
        """All lanes of the device."""

    def able(self) -> Sequence[RunnableLane]:
        """Return the lanes that may run their head op now."""

    def stuck(self, record: EventRecord) -> None:
        """Release ops that are held back; raise `Deadlock` if nothing is held back."""


class Policy(Protocol):
    """Chooses whether the host or a lane advances next."""

    name: str

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run device ops until it is the host's turn."""


class Eager:
    """Runs device ops as early as possible."""

    name = "eager"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run every op that can run."""
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
    """Runs device ops as late as possible: only ops that the blocked host needs.

    The host needs an op directly or through waits of other lanes.
    """

    name = "lazy"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run the ops that lead to the record for which the host waits."""
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
            # The op that is needed is held back; running another lane may release it.
            able = machine.able()
            if able:
                able[0].run()
            else:
                machine.stuck(blocked)


class LaneOrder:
    """A fixed priority of host and lanes: the first in `order` that can advance does."""

    def __init__(self, order: Sequence[str]) -> None:
        self.name = "lane_order " + ">".join(order)
        self.rank = {lane: rank for rank, lane in enumerate(order)}

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run lanes that have priority over the host; any lane while the host is blocked."""

        def choose(able: Sequence[RunnableLane]) -> RunnableLane | None:
            lane = able[0] if len(able) == 1 else min(able, key=lambda lane: self.rank[lane.name])
            return None if blocked is None and self.rank[HOST] < self.rank[lane.name] else lane

        _advance_chosen(machine, blocked, choose)


class Random:
    """A new random priority for every op and every host call (partial order sampling)."""

    def __init__(self, seed: int) -> None:
        self.name = f"random {seed}"
        self.seed = seed
        # Cached, because the head op of each lane is looked up at every host call.
        self._drawn: dict[tuple[str, str, int], tuple[int, int, int, int]] = {}

    def urgency(self, site: str, label: str, step: int) -> int:
        """Return the 32-bit priority of an op (site `lane`) or a host call (site `host`).

        One random draw gives the priorities of four consecutive steps.
        """
        key = site, label, step >> 2
        drawn = self._drawn.get(key)
        if drawn is None:
            drawn = self._drawn[key] = words(self.seed, *key)
        return drawn[step & 3]

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run head ops of higher priority than the host call; any head op while the host is blocked."""
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
    """Run the lanes that `choose` picks, until it returns None (the host) or no lane can run."""
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
    """Return 24 orders of five lanes; every pair of lanes occurs in both orders.

    These are every fifth permutation.
    """
    assert len(lanes) == _NUM_LANES, f"{len(lanes)} lanes"
    return list(permutations(lanes))[::5]
