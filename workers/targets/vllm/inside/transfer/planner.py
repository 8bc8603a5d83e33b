"""Scheduler side of our KV connectors: plan the loads and stores of each step.

The store's content is always correct: full blocks of tokens that the host has processed, computed no later than by the
step that stores them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from workers.targets.vllm.inside.transfer.flights import Flight, Flights, StoreFlights


@dataclass(slots=True)
class StepPlan:
    """Transfers that a step begins, requests it preempts, and blocks that its kernels access.

    `zeroed` are new blocks that are zeroed first. `passed` are blocks at whose ends the postprocessing of drafts may
    keep a recurrent state.
    """

    loads: list[Flight] = field(default_factory=list)
    stores: list[Flight] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)
    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    zeroed: set[int] = field(default_factory=set)
    passed: set[int] = field(default_factory=set)

    def used(self, kernel: str, is_written: bool) -> set[int]:
        """Return the block ids that a kernel (by name) reads or writes."""
        if "zero_kv_blocks" in kernel:
            return self.zeroed
        if "postprocess_mamba" in kernel:
            return self.passed
        return self.writes if is_written else self.reads


def blocks_used(
    requests: Mapping[str, Any], manager: Any, output: Any, block_size: int, groups: Sequence[int] = (0,)
) -> tuple[set[int], set[int]]:
    """Return the block ids that a scheduled step's kernels read, and those they write.

    The first of the KV-cache `groups` is attention; the others hold recurrent states, which also read the previous
    block.
    """
    reads: set[int] = set()
    writes: set[int] = set()
    attention, *with_states = groups
    for name in output.num_scheduled_tokens:
        request, held = requests[name], manager.get_block_ids(name)
        reads.update(held[attention])
        # The host's count exceeds the true one by draft tokens in flight, and may exceed the known tokens.
        known = request.num_tokens - (0 if request.num_output_placeholders else 1)
        first = min(request.num_computed_tokens, known)
        writes.update(held[attention][first // block_size :])
        for group in with_states:
            reads.update(held[group][max(0, first - 1) // block_size :])
            writes.update(held[group][first // block_size :])
    return reads, writes


class Planner:
    """Base planner: records the blocks that a step uses; subclasses plan loads and stores.

    `manager` is vLLM's KV-cache manager, `groups` the KV-cache group indexes (attention first, then those with
    recurrent states), and `sizes` the block size of each group.
    """

    def __init__(self, flights: Flights, groups: Sequence[int], sizes: Sequence[int]) -> None:
        self.flights, self.groups, self.sizes = flights, groups, sizes
        self.manager: Any = None
        self._requests: dict[str, Any] = {}

    def add(self, request: Any) -> None:
        self._requests[request.request_id] = request

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        """Return how many tokens to load (None: not known yet), and whether asynchronously."""
        return 0, False

    def admitted(self, request: Any, blocks: Sequence[list[int]], num_tokens: int) -> None:
        """Plan the load of `num_tokens` tokens for an admitted request; here none."""

    def state_blocks_after(self, num_tokens: int, blocks: Sequence[list[int]]) -> list[int]:
        """Return, per group with recurrent states, the block of the state after `num_tokens` tokens."""
        held = list(zip(self.sizes, blocks, strict=True))
        return [own[(num_tokens - 1) // size] for size, own in held[1:]]

    def plan(self, output: Any) -> StepPlan:
        """Return the new transfers and the used blocks of a scheduled step."""
        plan = StepPlan(preempted=set(output.preempted_req_ids or ()))
        size, groups = self.flights.block_size, self.groups
        plan.reads, plan.writes = blocks_used(self._requests, self.manager, output, size, groups)
        plan.zeroed = set(output.new_block_ids_to_zero or ())
        drafting = SimpleNamespace(num_scheduled_tokens=output.scheduled_spec_decode_tokens)
        plan.passed = blocks_used(self._requests, self.manager, drafting, size, groups)[1]
        self.flights.plan = plan
        return plan

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        """Forget an ended request; return whether its blocks are kept, and `kv_transfer_params`."""
        self._requests.pop(request.request_id, None)
        return False, None

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        """Process ended transfers and blocks that failed to load, along with a step's results."""


class StorePlanner(Planner):
    """Scheduler side of the KV connector to a store."""

    flights: StoreFlights

    def __init__(self, flights: StoreFlights, groups: Sequence[int], sizes: Sequence[int]) -> None:
        super().__init__(flights, groups, sizes)
        self._asked: dict[str, int] = {}
        # Result of a request's last lookup: its first block to load, slots of blocks, and slots of states.
        self._found: dict[str, tuple[int, list[int], list[int]]] = {}
        self._num_stored: dict[str, int] = {}
        self._loads: list[Flight] = []

    def matched(self, request: Any, num_computed: int) -> tuple[int | None, bool]:
        flights, name = self.flights, request.request_id
        first_tick = self._asked.setdefault(name, flights.tick)
        if flights.tick - first_tick < flights.spec.lookup_ticks:
            flights.probes["lookup_wait"] += 1
            return None, False
        size, is_asynchronous = flights.block_size, flights.spec.loads == "asynchronous"
        # An asynchronous load may cover all tokens: a later step recomputes the last one. A synchronous load, or one
        # with recurrent states, leaves a token to compute.
        is_whole = is_asynchronous and not self._with_states
        num_full = min(flights.num_full_blocks(request.num_tokens), (request.num_tokens - (not is_whole)) // size)
        first, tokens = num_computed // size, request.all_token_ids
        slots = flights.store.prefix(flights.key(tokens, index) for index in range(first, num_full))
        slots, states = self._up_to_states(tokens, first, slots)
        self._found[name] = first, slots, states
        return len(slots) * size, is_asynchronous and bool(slots)

    @property
    def _with_states(self) -> range:
        """Return the indexes of KV-cache groups with recurrent states."""
        return range(1, len(self.groups))

    def _up_to_states(self, tokens: Sequence[int], first: int, slots: list[int]) -> tuple[list[int], list[int]]:
        """Cut block slots to the last block end with stored states; return also state slots."""
        for count in range(len(slots), 0, -1):
            prefix = tokens[: (first + count) * self.flights.block_size]
            states = self.flights.store.states(prefix, self._with_states)
            if states is not None:
                return slots[:count], states
        return [], []

    def admitted(self, request: Any, blocks: Sequence[list[int]], num_tokens: int) -> None:
        flights, name = self.flights, request.request_id
        if num_tokens or not flights.of(name, "load"):
            self._num_stored[name] = 0
        if not num_tokens:
            return
        first, slots, states = self._found[name]
        count = num_tokens // flights.block_size
        flights.probes["partial_load"] += request.num_tokens // flights.block_size > first + count
        slots = slots[:count] + states
        flights.store.pin(slots)
        # A state is loaded into the last block before it.
        places = blocks[0][first : first + count] + self.state_blocks_after(
            (first + count) * flights.block_size, blocks
        )
        self._loads.append(flights.planned("load", name, blocks=places, slots=slots, num_states=len(states)))

    def plan(self, output: Any) -> StepPlan:
        plan = super().plan(output)
        plan.loads, self._loads = self._loads, []
        plan.stores += self._stores_of_states(output)
        for name, count in output.num_scheduled_tokens.items():
            request, blocks = self._requests[name], self.manager.get_block_ids(name)[self.groups[0]]
            store = self._store(request, blocks, request.num_computed_tokens + count)
            plan.stores += [store] if store is not None else []
        return plan

    def _stores_of_states(self, output: Any) -> Iterator[Flight]:
        """Yield stores of recurrent states at block ends; a reference protects their blocks.

        vLLM offers each state only once.
        """
        flights = self.flights
        offered = output.kv_connector_block_state.boundary_state_offloads if self._with_states else {}
        for name, offers in offered.items():
            boundaries: dict[int, dict[int, int]] = {}
            for number, block, boundary in offers:
                boundaries.setdefault(boundary, {})[self.groups.index(number)] = block
            for boundary, held in boundaries.items():
                # A load ends at a block end, so a state inside a block is never needed.
                if boundary % flights.block_size:
                    continue
                keys = [(group, tuple(self._requests[name].all_token_ids[:boundary])) for group in sorted(held)]
                if any(map(flights.store.has, keys)):
                    continue
                slots = [slot for slot in map(flights.store.write, keys) if slot is not None]
                if len(slots) < len(keys):
                    for key, slot in zip(keys, slots, strict=False):
                        flights.store.written(key, slot, is_kept=False)
                    continue
                blocks = [held[group] for group in sorted(held)]
                self.manager.block_pool.touch([self.manager.block_pool.blocks[block] for block in blocks])
                flights.probes["store_of_states"] += 1
                yield flights.planned(
                    "store", name, blocks=blocks, slots=slots, keys=keys, num_states=len(blocks), context=frozenset()
                )

    def _store(self, request: Any, blocks: list[int], num_computed: int) -> Flight | None:
        """Return a store of the full computed blocks of a request that the store lacks, or None."""
        flights, name = self.flights, request.request_id
        begun = self._num_stored.get(name, 0)
        full = min(flights.num_full_blocks(request.num_tokens), num_computed // flights.block_size)
        self._num_stored[name] = max(begun, full)
        indexes, slots, keys = [], [], []
        for index in range(begun, full):
            key = flights.key(request.all_token_ids, index)
            slot = None if flights.store.has(key) else flights.store.write(key)
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

    def ended(self, request: Any, blocks: Sequence[list[int]]) -> tuple[bool, dict[str, Any] | None]:
        name: str = request.request_id
        super().ended(request, blocks)
        for known in (self._asked, self._found, self._num_stored):
            known.pop(name, None)
        is_kept = self.flights.stores_tokens(name)
        if is_kept:
            self.flights.probes["store_of_ended"] += 1
            self.flights.held_back.add(name)
        return is_kept, None

    def processed(self, ended: list[Flight], invalid: set[int]) -> None:
        flights = self.flights
        flights.discard_dependents(invalid)
        for flight in ended:
            if flight.of == "load":
                flights.store.unpin(flight.slots)
                continue
            flights.written(flight)
            if flight.num_states:
                pool = self.manager.block_pool
                pool.free_blocks([pool.blocks[block] for block in flight.blocks])
