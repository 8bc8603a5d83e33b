"""KV transfers in flight of one engine, shared by both sides of its KV connector."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from scenarios.events import DisturbTransfer
from scenarios.spec import Transfer
from workers.targets.vllm.inside.transfer.store import Key, Store

# A `send` keeps a producer's blocks until the consumer's load has read them.
Kind: TypeAlias = Literal["load", "store", "send"]
# Records an observation of transfers: point, names of the requests, values by name.
Note = Callable[..., None]


def discard_observation(point: str, names: list[str], **values: Any) -> None:
    """Ignore an observation: the callback of engines that are not observed."""


def note_in_flight(note: Note, begun: Sequence[Any], arriving: Sequence[Any], blocks: Sequence[Any]) -> None:
    """Record blocks that are freed, or registered as cached, before their transfer has ended.

    `begun` and `arriving` have a number and block ids each; without a begun transfer nothing is recorded.
    """
    if begun:
        free = [[each.number, block] for each in begun for block in each.blocks if not blocks[block].ref_cnt]
        pairs = [(each.number, block) for each in arriving for block in each.blocks]
        registered = [[number, block] for number, block in pairs if blocks[block].block_hash is not None]
        note("in_flight", [], free=free, registered=registered)


@dataclass(slots=True, eq=False)
class Flight:
    """One transfer of a request's KV blocks (load, store or send), from plan to processed end.

    The last `num_states` blocks hold recurrent states, one per KV-cache group with states; the others hold the KV
    entries of tokens. Blocks at the indexes in `lost` are not copied. `context` are the blocks that a store's content
    depends on.
    """

    number: int
    of: Kind
    request: str
    blocks: list[int]
    slots: list[int]
    is_synchronous: bool
    num_states: int = 0
    keys: list[Key] = field(default_factory=list)
    context: frozenset[int] = frozenset()
    due: int = -1
    lost: set[int] = field(default_factory=set)
    is_repeated: bool = False
    is_kept: bool = True
    is_copied: bool = False
    layer_events: Any = None

    @property
    def has_begun(self) -> bool:
        return self.due >= 0

    def group(self, index: int) -> int:
        """Return the number of a block's KV-cache group: 0 for attention, then groups with states."""
        return max(0, index + 1 - (len(self.blocks) - self.num_states))


class Flights:
    """KV transfers of one trace, shared by the scheduler and worker sides of the connector.

    `agent` is the worker side.

    `is_dummy` is true during a dummy batch, in which all slots are padding. `stream` is the engine's own stream, if
    any.
    """

    def __init__(self, spec: Transfer, block_size: int) -> None:
        self.spec, self.block_size = spec, block_size
        self.agent: Any = None
        self.stream: Any = None
        self.is_dummy = False
        self.block_pool: Any = None
        self.begin(Counter(), discard_observation)

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Reset for a new trace: tick 0, and no transfer in flight."""
        self.probes, self.note, self.tick = probes, note, 0
        # The plan of the latest step; the worker executes it before the next one is made.
        self.plan: Any = None
        self.flights: list[Flight] = []
        self.aborted: set[str] = set()
        self._num_flights = 0
        self._pending_disturbances: dict[tuple[str, str], list[DisturbTransfer]] = {}

    @property
    def memory(self) -> Mapping[str, object]:
        copies = self.agent.mover.copies
        return {"transfer": copies} if copies is not None else {}

    @property
    def holds_blocks(self) -> bool:
        """Return whether a transfer is in flight; its blocks cannot be freed before its end."""
        return bool(self.flights)

    def of(self, request: str, of: str) -> list[Flight]:
        """Return a request's transfers in flight of kind `of` (load, store, send), oldest first."""
        return [flight for flight in self.flights if (flight.request, flight.of) == (request, of)]

    def planned(self, of: Kind, request: str, **values: Any) -> Flight:
        """Create a transfer and count it as in flight; it begins at `start`."""
        way = self.spec.loads if of == "load" else self.spec.stores
        flight = Flight(self._num_flights, of, request, is_synchronous=way == "synchronous", **values)
        self._num_flights += 1
        self.flights.append(flight)
        return flight

    def start(self, flight: Flight) -> None:
        """Begin a created transfer; apply the `disturb_transfer` events that waited for it."""
        ticks = self.spec.load_ticks if flight.of == "load" else self.spec.store_ticks
        flight.due = self.tick + (0 if flight.is_synchronous else ticks)
        self.probes[flight.of] += 1
        for event in self._pending_disturbances.pop((flight.request, flight.of), ()):
            self._disturb(flight, event)
        self._record(flight, "begins")

    def copied(self, flight: Flight) -> None:
        """Mark all blocks of a transfer as copied; called by its copy task."""
        self._record(flight, "copies")

    def end(self, flight: Flight, is_ahead: bool) -> None:
        """End a transfer, so that its blocks may be reused; `is_ahead`: before the step's kernels."""
        self.flights.remove(flight)
        if flight.of == "load":
            self.probes["lost_load"] += bool(flight.lost)
            self.probes["load_of_aborted"] += flight.request in self.aborted
        self._record(flight, "ends", is_ahead)

    def disturb(self, event: DisturbTransfer, request: str) -> None:
        """Apply a `disturb_transfer` event to a request's transfer in flight, or to its next one."""
        begun = [flight for flight in self.of(request, event.of) if flight.has_begun and not flight.is_copied]
        if begun:
            self._disturb(begun[0], event)
        else:
            self._pending_disturbances.setdefault((request, event.of), []).append(event)

    def _disturb(self, flight: Flight, event: DisturbTransfer) -> None:
        match event.how:
            case "delay":
                flight.due += 0 if flight.is_synchronous else event.ticks
            case "hasten":
                flight.due = min(flight.due, self.tick)
            case "repeat":
                flight.is_repeated = True
            case "fail":
                flight.lost.add(min(event.block, len(flight.blocks) - 1))
            case "drop":
                flight.lost = set(range(len(flight.blocks)))
                flight.due += 0 if flight.is_synchronous else self.spec.timeout_ticks

    def _record(self, flight: Flight, phase: str, is_ahead: bool = False) -> None:
        self.note(
            "transfer",
            [flight.request],
            number=flight.number,
            phase=phase,
            of=flight.of,
            is_synchronous=flight.is_synchronous,
            blocks=list(flight.blocks),
            slots=list(flight.slots),
            num_states=flight.num_states,
            lost=sorted(flight.lost),
            is_ahead=is_ahead,
        )

    def record_blocks(self) -> None:
        """Record blocks that are freed during their transfer, or registered before it ended."""
        begun = [flight for flight in self.flights if flight.has_begun]
        arriving = [each for each in begun if each.of == "load" and not each.is_synchronous]
        note_in_flight(self.note, begun, arriving, self.block_pool.blocks)

    def left(self) -> Mapping[str, int]:
        """Return the number of transfers and other resources still held after the last request."""
        return {"transfers in flight": len(self.flights)}


class StoreFlights(Flights):
    """KV transfers of an engine whose KV connector has a store.

    `held_back` has finished requests that keep their blocks until their stores end. `num_lookahead_tokens` is the
    number of tokens after a block that its drafter KV entries depend on; they are part of the block's key.
    """

    def __init__(self, spec: Transfer, block_size: int, num_lookahead_tokens: int) -> None:
        self.num_lookahead_tokens = num_lookahead_tokens
        super().__init__(spec, block_size)

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Reset for a new trace, with an empty KV store."""
        super().begin(probes, note)
        self.store = Store(self.spec.store_blocks)
        self.held_back: set[str] = set()
        # Stores whose end the scheduler has not processed; with a drafter it processes them one step late.
        self._unwritten: list[Flight] = []

    def num_full_blocks(self, num_tokens: int) -> int:
        """Return how many blocks of a request with `num_tokens` known tokens have a key."""
        return max(0, num_tokens - self.num_lookahead_tokens) // self.block_size

    def key(self, tokens: Sequence[int], index: int) -> Key:
        """Return the store's key of a request's block of KV entries, by its index."""
        end = (index + 1) * self.block_size + self.num_lookahead_tokens
        assert end <= len(tokens), f"block {index} ends after the request's {len(tokens)} known tokens"
        return 0, tuple(tokens[:end])

    def planned(self, of: Kind, request: str, **values: Any) -> Flight:
        flight = super().planned(of, request, **values)
        if of == "store":
            self._unwritten.append(flight)
        return flight

    def stores_tokens(self, request: str) -> bool:
        """Return whether a store of a request's token blocks, not only states, is in flight.

        A store of recurrent states holds references to its blocks, so the request's end does not free them.
        """
        return any(not flight.num_states for flight in self.of(request, "store"))

    def left(self) -> Mapping[str, int]:
        return {
            **super().left(),
            "pinned slots of the store": self.store.num_pinned,
            "slots of the store being written": self.store.num_writing,
            "requests kept for their stores": len(self.held_back),
        }

    def discard_dependents(self, invalid: Collection[int]) -> None:
        """Drop stores that depend on blocks whose load failed."""
        for flight in self._unwritten:
            flight.is_kept &= flight.context.isdisjoint(invalid)

    def written(self, flight: Flight) -> None:
        """Add the blocks of a completed store to the KV store, except those it lost."""
        self._unwritten.remove(flight)
        for index, (key, slot) in enumerate(zip(flight.keys, flight.slots, strict=True)):
            self.store.written(key, slot, flight.is_kept and index not in flight.lost)
