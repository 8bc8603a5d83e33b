"""Policies that choose the order in which the host and the lanes (device queues) advance.

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
    """Methods of a lane that a policy may call."""

    name: str

    @property
    def queue(self) -> Sized:
        """Ops, waits and records that are enqueued and have not run; may be empty."""

    def ready(self) -> bool:
        """Return whether the first op of the queue may run now."""

    def run(self) -> None:
        """Run the first op of the queue."""

    def head(self) -> tuple[str, int]:
        """Return name and step of the first op of the queue."""

    def blocking(self) -> EventRecord | None:
        """Return the event record that the lane waits for, None if it waits for none."""


class Lanes(Protocol):
    """Methods of a machine that a policy may call."""

    host_label: str
    step: int
    pending: int

    @property
    def lanes(self) -> Sequence[RunnableLane]:
        """All lanes of the machine."""

    def able(self) -> Sequence[RunnableLane]:
        """Return the lanes whose first op may run now."""

    def stuck(self, record: EventRecord) -> None:
        """Release all ops that the schedule delays, or raise `Deadlock` if there is none."""


class Policy(Protocol):
    """Chooses, at each host call, which device ops run before it."""

    name: str

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run device ops until it is the host's turn; if it is blocked, until `blocked` is done."""


class Eager:
    """Policy that runs device ops as early as possible."""

    name = "eager"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run all device ops that can run."""
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
    """Policy that runs only the device ops that a blocked host waits for.

    The host needs an op directly or through waits of other lanes.
    """

    name = "lazy"

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run only ops that complete the event record that the host waits for."""
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
    """Policy with fixed priorities: of host and lanes, the first in `order` that can run does."""

    def __init__(self, order: Sequence[str]) -> None:
        self.name = "lane_order " + ">".join(order)
        self.rank = {lane: rank for rank, lane in enumerate(order)}

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run lanes with a higher priority than the host; while the host is blocked, any lane."""

        def choose(able: Sequence[RunnableLane]) -> RunnableLane | None:
            lane = able[0] if len(able) == 1 else min(able, key=lambda lane: self.rank[lane.name])
            return None if blocked is None and self.rank[HOST] < self.rank[lane.name] else lane

        _advance_chosen(machine, blocked, choose)


class Random:
    """Policy with a new random priority for every op and host call (partial order sampling)."""

    def __init__(self, seed: int) -> None:
        self.name = f"random {seed}"
        self.seed = seed
        # Cached, because the head op of each lane is looked up at every host call.
        self._drawn: dict[tuple[str, str, int], tuple[int, int, int, int]] = {}

    def urgency(self, site: str, label: str, step: int) -> int:
        """Return the 32-bit random priority of an op (site `lane`) or host call (site `host`).

        One random draw gives the priorities of four consecutive steps.
        """
        key = site, label, step >> 2
        drawn = self._drawn.get(key)
        if drawn is None:
            drawn = self._drawn[key] = words(self.seed, *key)
        return drawn[step & 3]

    def advance(self, machine: Lanes, blocked: EventRecord | None) -> None:
        """Run first ops with a higher priority than the host call; if the host is blocked, any."""
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
    """Run the lanes that `choose` returns, until it returns None (host's turn) or none can run."""
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
    """Return 24 orders of five lanes, in which each pair of lanes occurs both ways round.

    These are every fifth permutation.
    """
    assert len(lanes) == _NUM_LANES, f"{len(lanes)} lanes"
    return list(permutations(lanes))[::5]
