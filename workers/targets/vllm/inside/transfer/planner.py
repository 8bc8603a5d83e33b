"""Side of the scheduler: what is loaded and stored, and what the engine is told of it.

What a store holds is known to be right: full blocks of tokens that the host has seen, computed by the step that stores
them at the latest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.targets.vllm.inside.transfer.flights import Flight, Flights, StoreFlights


@dataclass(slots=True)
class StepPlan:
    """What one step begins, whose blocks were taken away since the last one, and which blocks its kernels use."""

    loads: list[Flight] = field(default_factory=list)
    stores: list[Flight] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)


def blocks_used(requests: Mapping[str, Any], manager: Any, output: Any, block_size: int) -> tuple[set[int], set[int]]:
    """Return the blocks that the kernels of a planned step read, and those that they write."""
    reads: set[int] = set()
    writes: set[int] = set()
    for name in output.num_scheduled_tokens:
        request, blocks = requests[name], manager.get_block_ids(name)[0]
        reads.update(blocks)
        # The host's count is above the true one by drafts in flight, which is above what is known.
        known = request.num_tokens - (0 if request.num_output_placeholders else 1)
        writes.update(blocks[min(request.num_computed_tokens, known) // block_size :])
    return reads, writes


class Planner:
    """Plans of one engine, of which what it loads and stores is of those that derive from it.

    `manager` is vLLM's manager of its cache.
    """

    def __init__(self, flights: Flights) -> None:
        self.flights = flights
        self.manager: Any = None
        self._requests: dict[str, Any] = {}

    def add(self, request: Any) -> None:
        self._requests[request.request_id] = request

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        """Return how many tokens behind the computed ones can be loaded, None while that is unknown; and how."""
        return 0, False

    def admitted(self, request: Any, blocks: list[int], num_tokens: int) -> None:
        """Begin a request that has got its blocks, of which some are to be loaded."""

    def plan(self, output: Any) -> StepPlan:
        """Return what a step that is scheduled begins."""
        plan = StepPlan(preempted=set(output.preempted_req_ids or ()))
        plan.reads, plan.writes = blocks_used(self._requests, self.manager, output, self.flights.block_size)
        return plan

    def ended(self, request: Any, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        """Forget a request; return whether its blocks are to be kept for now, and what its client is told of them."""
        self._requests.pop(request.request_id, None)
        return False, None

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        """Take the ends of transfers in, once a step comes back to the scheduler."""


class StorePlanner(Planner):
    """Plans of an engine with a store."""

    flights: StoreFlights

    def __init__(self, flights: StoreFlights) -> None:
        super().__init__(flights)
        self._asked: dict[str, int] = {}
        # The first block and the slots that were found of a request when it was asked for last.
        self._found: dict[str, tuple[int, list[int]]] = {}
        self._num_stored: dict[str, int] = {}
        self._loads: list[Flight] = []

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        flights, name = self.flights, request.request_id
        first_tick = self._asked.setdefault(name, flights.tick)
        if flights.tick - first_tick < flights.spec.lookup_ticks:
            flights.probes["lookup_wait"] += 1
            return None, False
        size, is_asynchronous = flights.block_size, flights.spec.loads == "asynchronous"
        # A step of its own computes the last token again; in this one a token must be left.
        num_full = (request.num_tokens - (0 if is_asynchronous else 1)) // size
        first = num_computed // size
        slots = flights.store.prefix(request.all_token_ids, size, range(first, num_full))
        if flights.drops_last_match:
            slots = slots[:-1]
        self._found[name] = first, slots
        return len(slots) * size, is_asynchronous and bool(slots)

    def admitted(self, request: Any, blocks: list[int], num_tokens: int) -> None:
        flights, name = self.flights, request.request_id
        if num_tokens or not flights.of(name, "load"):
            self._num_stored[name] = 0
        if not num_tokens:
            return
        first, slots = self._found[name]
        count = num_tokens // flights.block_size
        flights.probes["partial_load"] += request.num_tokens // flights.block_size > first + count
        flights.store.pin(slots[:count])
        self._loads.append(
            flights.planned("load", name, blocks=blocks[first : first + count], slots=slots[:count]),
        )

    def plan(self, output: Any) -> StepPlan:
        plan = super().plan(output)
        plan.loads, self._loads = self._loads, []
        for name, count in output.num_scheduled_tokens.items():
            request, blocks = self._requests[name], self.manager.get_block_ids(name)[0]
            store = self._store(request, blocks, min(request.num_tokens, request.num_computed_tokens + count))
            plan.stores += [store] if store is not None else []
        return plan

    def _store(self, request: Any, blocks: list[int], num_tokens: int) -> Flight | None:
        """Return the store of a request's full blocks among its first tokens that are not stored yet."""
        flights, name, size = self.flights, request.request_id, self.flights.block_size
        begun, full = self._num_stored.get(name, 0), num_tokens // size
        self._num_stored[name] = max(begun, full)
        indexes, slots, keys = [], [], []
        for index in range(begun, full):
            key = tuple(request.all_token_ids[: (index + 1) * size])
            slot = None if flights.store.knows(key) else flights.store.write(key)
            if slot is not None:
                indexes.append(index)
                slots.append(slot)
                keys.append(key)
        flights.probes["store_eviction"] = flights.store.num_evicted
        if not slots:
            return None
        sources = [blocks[index] for index in indexes]
        context = frozenset(blocks[: indexes[-1] + 1])
        return flights.planned("store", name, blocks=sources, slots=slots, keys=keys, context=context)

    def ended(self, request: Any, blocks: list[int]) -> tuple[bool, dict[str, Any] | None]:
        name: str = request.request_id
        super().ended(request, blocks)
        for known in (self._asked, self._found, self._num_stored):
            known.pop(name, None)
        is_kept = bool(self.flights.of(name, "store"))
        if is_kept:
            self.flights.probes["store_of_ended"] += 1
            self.flights.held_back.add(name)
        return is_kept, None

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        store = self.flights.store
        self.flights.forget(invalid)
        for flight in ended:
            if flight.of == "load":
                store.unpin(flight.slots)
                continue
            is_kept = flight.is_kept and flight.context.isdisjoint(invalid)
            for index, (key, slot) in enumerate(zip(flight.keys, flight.slots, strict=True)):
                store.written(key, slot, is_kept and index not in flight.lost)
