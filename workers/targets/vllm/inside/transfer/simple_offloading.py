"""Observer of vLLM's simple offloading connector; records its copies as transfers.

The connector copies blocks of several requests with one event. A recorded transfer is one request's share of an event,
in flight from the step that plans it until the host knows that the event is over.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from scenarios.spec import Offloading
from workers.simulated_torch.batch_copies import Addresses
from workers.targets.vllm.inside.transfer.flights import Note, discard_observation, note_in_flight
from workers.targets.vllm.inside.transfer.own_transfers import OwnTransfer, OwnTransfers, copied_blocks, wrap_method

_DIRECTIONS = ("load", "store")


class SimpleOffloads(OwnTransfers):
    """Observes the loads and stores of one engine's simple offloading connector."""

    def __init__(self, engine: Any, agent: Any, spec: Offloading) -> None:
        super().__init__(engine, agent, spec)
        self._manager = engine.scheduler.connector.scheduler_manager
        self._worker = agent.worker_handler
        self._num_free = self._manager.cpu_block_pool.get_num_free_blocks()
        self._copies = {"load": self._worker._backend._load_params, "store": self._worker._backend._store_params}
        self._wrap()
        self.begin(Counter(), discard_observation)

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Reset for a new trace, with an empty CPU pool."""
        is_empty = self._manager.reset()
        assert is_empty, "an idle engine has no transfer"
        super().begin(probes, note)
        self._num_parts = 0
        # By direction and event: transfers in flight, and the earliest tick at which the event is over.
        self.parts: dict[tuple[str, int], list[OwnTransfer]] = {}
        self._due: dict[tuple[str, int], int] = {}
        # By block to be stored: its request, its index in the block table, and the request's tokens.
        self._owners: dict[int, tuple[str, int, list[int]]] = {}

    @property
    def memory(self) -> Mapping[str, object]:
        return {"offloading": SimpleNamespace(pool=list(self._worker.cpu_kv_caches.values()))}

    @property
    def holds_blocks(self) -> bool:
        """Return whether a transfer is in flight; its blocks cannot be freed before its end."""
        return bool(self.parts)

    def left(self) -> Mapping[str, int]:
        """Return the number of transfers and other resources still held after the last request."""
        manager, worker = self._manager, self._worker
        return {
            "transfers in flight": len(self._in_flight()),
            "requests that load": len(manager._reqs_to_load) + len(manager._load_event_to_reqs),
            "requests that store": len(manager._reqs_to_store) + len(manager._store_event_to_reqs),
            "stores of the connector": len(manager._store_event_to_blocks) + len(manager._pending_finished_stores),
            "blocks being stored": len(manager._in_flight_store_gpu_blocks),
            "hits held": len(manager._pending_cpu_hits),
            "pinned blocks of the pool": self._num_free - manager.cpu_block_pool.get_num_free_blocks(),
            "copies of the worker": len(worker._load_events) + len(worker._store_events),
        }

    def _wrap(self) -> None:
        """Wrap methods of the connector's scheduler and worker sides, for the engine's lifetime."""
        wrap_method(self._manager, "build_connector_meta", self._planned)
        wrap_method(self._manager, "_select_eager_blocks_to_store", self._selected)
        wrap_method(self._manager.cpu_block_pool, "_maybe_evict_cached_block", self._evicted)
        wrap_method(self.agent, "handle_preemptions", self._before_a_step)
        wrap_method(self._worker._backend, "launch_copy", self._launched)
        wrap_method(self._worker, "_poll_stream_events", self._polled)
        wrap_method(self._worker, "get_finished", self._finished)

    def _selected(self, select: Callable[..., Any], state: Any, tables: Any, *arguments: Any, **options: Any) -> Any:
        found = select(state, tables, *arguments, **options)
        name, tokens = state.request.request_id, state.request.all_token_ids[:]
        table = self._engine.kv_cache_manager.get_block_ids(name)[0]
        for block in found[0]:
            self._owners[block] = name, table.index(block), tokens
        return found

    def _evicted(self, evict: Callable[..., bool], *arguments: Any, **options: Any) -> bool:
        is_evicted = evict(*arguments, **options)
        self.probes["store_eviction"] += is_evicted
        return is_evicted

    def _planned(self, build: Callable[..., Any], output: Any, *arguments: Any, **options: Any) -> Any:
        metadata = super()._planned(build, output, *arguments, **options)
        metadata.parts = [*self._loads(metadata), *self._stores(metadata)]
        return metadata

    def _loads(self, metadata: Any) -> Iterator[tuple[int, OwnTransfer]]:
        """Yield (event index, load of one request) for each load in the step's metadata."""
        for name in metadata.load_event_to_reqs.get(metadata.load_event, ()):
            transfer = self._manager._reqs_to_load[name].transfer_meta
            blocks, slots = list(transfer.gpu_block_ids), list(transfer.cpu_block_ids)
            yield metadata.load_event, self._part("load", name, blocks, slots, [], [])

    def _stores(self, metadata: Any) -> Iterator[tuple[int, OwnTransfer]]:
        """Yield (event index, store of one request) for each request with stores in a step."""
        found: dict[str, list[tuple[int, int]]] = {}
        for block, slot in zip(metadata.store_gpu_blocks, metadata.store_cpu_blocks, strict=True):
            found.setdefault(self._owners[block][0], []).append((block, slot))
        for name, pairs in found.items():
            blocks, slots = [block for block, _ in pairs], [slot for _, slot in pairs]
            indexes = [self._owners[block][1] for block in blocks]
            tokens = max((self._owners[block][2] for block in blocks), key=len)
            yield metadata.store_event, self._part("store", name, blocks, slots, indexes, tokens)

    def _part(
        self, of: str, name: str, blocks: list[int], slots: list[int], indexes: list[int], tokens: list[int]
    ) -> OwnTransfer:
        self._num_parts += 1
        return OwnTransfer(self._num_parts, of, name, blocks, slots, indexes, tokens)

    def _before_a_step(self, handle: Callable[..., Any], metadata: Any, *arguments: Any, **options: Any) -> None:
        """Record that the loads and stores in a step's metadata begin."""
        for part in self._in_flight():
            self.probes["store_of_preempted"] += part.of == "store" and part.request in metadata.preempted
        handle(metadata, *arguments, **options)
        for event, part in metadata.parts:
            self.parts.setdefault((part.of, event), []).append(part)
            self.probes[part.of] += 1
            self._record(part, "begins", part.blocks, part.slots)
        every = self._in_flight()
        loads = [part for part in every if part.of == "load"]
        note_in_flight(self.note, every, loads, self._engine.kv_cache_manager.block_pool.blocks)

    def _launched(self, launch: Callable[..., None], *arguments: Any, **options: Any) -> None:
        of, event = _DIRECTIONS[options["is_store"]], options["event_idx"]
        self._due[of, event] = self.tick + self._ticks[of]
        self._copies[of].on_complete = partial(self._copied, of, event)
        launch(*arguments, **options)

    def _copied(self, of: str, event: int, rows: Addresses) -> None:
        """Record the copied blocks and CPU-pool slots, computed from the first layer's addresses."""
        cache = next(iter(self._worker.gpu_kv_caches.values()))
        pool = next(iter(self._worker.cpu_kv_caches.values()))
        # A block may be stored twice by one event.
        slots: dict[int, deque[int]] = {}
        for block, slot in copied_blocks(of, rows, cache, pool):
            slots.setdefault(block, deque()).append(slot)
        for part in self.parts.get((of, event), ()):
            self._record_copies(part, part.blocks, [slots[block].popleft() for block in part.blocks])

    def _polled(self, poll: Callable[..., int], is_store: bool, *arguments: Any, **options: Any) -> int:
        """Complete the copies of one direction whose time has come at this tick, and no others.

        The device's schedule does not matter.
        """
        of, name = _DIRECTIONS[is_store], "_store_events" if is_store else "_load_events"
        every: Sequence[tuple[int, Any]] = getattr(self._worker, name)
        due = [pair for pair in every if self._due[of, pair[0]] <= self.tick]
        for _, event in due:
            event.synchronize()
        setattr(self._worker, name, list(due))
        over = poll(is_store, *arguments, **options)
        setattr(self._worker, name, list(every[len(due) :]))
        return over

    def _finished(self, finish: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        worker = self._worker
        before = {of: set(getattr(worker, f"_pending_{of}_event_indices")) for of in _DIRECTIONS}
        results = finish(*arguments, **options)
        for of in _DIRECTIONS:
            for event in sorted(before[of] - getattr(worker, f"_pending_{of}_event_indices")):
                for part in self.parts.pop((of, event), ()):
                    self._record_end(part)
        return results

    def _in_flight(self) -> list[OwnTransfer]:
        return [part for parts in self.parts.values() for part in parts]
