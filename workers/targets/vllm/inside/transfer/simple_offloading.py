"""Transfers of vLLM's simple offloading connector, observed from outside on both of its sides.

It loads and stores blocks of several requests at once, which are told of one by one: a transfer is what one of its
events has of one request, in flight from the step that plans it until the event is known to be over.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from scenarios.events import DisturbTransfer
from scenarios.spec import Offloading
from workers.targets.simulated_torch.batch_copies import Addresses
from workers.targets.vllm.inside.transfer.flights import Note, note_in_flight, silent
from workers.targets.vllm.inside.transfer.planner import blocks_used

_KINDS = ("load", "store")


@dataclass(slots=True)
class Part:
    """What an event of one direction has of one request: blocks of the cache, and of the pool.

    A store keeps those at some `indexes` of its request's table, which are of its first `tokens`.
    """

    number: int
    of: str
    request: str
    blocks: list[int]
    slots: list[int]
    indexes: list[int]
    tokens: list[int]


class SimpleOffloads:
    """All that is seen of the transfers of an engine; `agent` is the connector's side of the worker."""

    def __init__(self, engine: Any, agent: Any, spec: Offloading) -> None:
        self.agent, self.is_dummy = agent, False
        self._ticks = {"load": spec.load_ticks, "store": spec.store_ticks}
        self._engine = engine.scheduler
        self._manager = engine.scheduler.connector.scheduler_manager
        self._worker = agent.worker_handler
        self._num_free = self._manager.cpu_block_pool.get_num_free_blocks()
        self._copies = {"load": self._worker._backend._load_params, "store": self._worker._backend._store_params}
        self._wrap()
        self.begin(Counter(), silent)

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Begin a trace, with an empty pool."""
        is_empty = self._manager.reset()
        assert is_empty, "an idle engine has no transfers"
        self.probes, self.note, self.tick = probes, note, 0
        self.aborted: set[str] = set()
        self._num_parts = 0
        # By direction and event what is in flight, and when it is over at the soonest.
        self.parts: dict[tuple[str, int], list[Part]] = {}
        self._due: dict[tuple[str, int], int] = {}
        # Of a block that is to be stored its request, where that holds it, and the request's tokens.
        self._owners: dict[int, tuple[str, int, list[int]]] = {}

    @property
    def memory(self) -> Mapping[str, object]:
        return {"offloading": SimpleNamespace(pool=list(self._worker.cpu_kv_caches.values()))}

    @property
    def holds_blocks(self) -> bool:
        """Tell whether a transfer has blocks that nobody may be made to give back."""
        return bool(self.parts)

    def disturb(self, event: DisturbTransfer, request: str) -> None:
        raise ValueError("nobody disturbs vLLM's own transfers")

    def left(self) -> Mapping[str, int]:
        """Return what is held once nothing is left to do."""
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

    def touched(self) -> tuple[list[int], list[int]] | None:
        """Return the blocks that the running step's kernels read, and those that they write; None if nobody knows."""
        if self.is_dummy:
            return [], []
        if not self.agent.has_connector_metadata():
            return None
        reads, writes = self.agent._get_connector_metadata().touched
        return sorted(reads), sorted(writes)

    def _wrap(self) -> None:
        """Wrap both sides for as long as the engine lives."""
        self.agent.touched = self.touched
        around(self._manager, "build_connector_meta", self._planned)
        around(self._manager, "_select_eager_blocks_to_store", self._selected)
        around(self._manager.cpu_block_pool, "_maybe_evict_cached_block", self._evicted)
        around(self.agent, "handle_preemptions", self._before_a_step)
        around(self._worker._backend, "launch_copy", self._launched)
        around(self._worker, "_poll_stream_events", self._polled)
        around(self._worker, "get_finished", self._finished)

    def _selected(self, select: Callable[..., Any], state: Any, tables: Any) -> Any:
        found = select(state, tables)
        table, tokens = list(tables[0]), state.request.all_token_ids[:]
        for block in found[0]:
            self._owners[block] = state.request.request_id, table.index(block), tokens
        return found

    def _evicted(self, evict: Callable[..., bool], block: Any) -> bool:
        is_evicted = evict(block)
        self.probes["store_eviction"] += is_evicted
        return is_evicted

    def _planned(self, build: Callable[..., Any], output: Any) -> Any:
        metadata = build(output)
        requests, manager = self._engine.requests, self._engine.kv_cache_manager
        metadata.touched = blocks_used(requests, manager, output, self._engine.block_size)
        metadata.preempted = set(output.preempted_req_ids or ())
        metadata.parts = [*self._loads(metadata), *self._stores(metadata)]
        return metadata

    def _loads(self, metadata: Any) -> Iterator[tuple[int, Part]]:
        """Yield what a plan loads of each request."""
        for name in metadata.load_event_to_reqs.get(metadata.load_event, ()):
            transfer = self._manager._reqs_to_load[name].transfer_meta
            blocks, slots = list(transfer.gpu_block_ids), list(transfer.cpu_block_ids)
            yield metadata.load_event, self._part("load", name, blocks, slots, [], [])

    def _stores(self, metadata: Any) -> Iterator[tuple[int, Part]]:
        """Yield what a plan stores of each request."""
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
    ) -> Part:
        self._num_parts += 1
        return Part(self._num_parts, of, name, blocks, slots, indexes, tokens)

    def _before_a_step(self, handle: Callable[..., Any], metadata: Any) -> None:
        """Tell of what a plan begins."""
        for part in self._in_flight():
            self.probes["store_of_preempted"] += part.of == "store" and part.request in metadata.preempted
        handle(metadata)
        for event, part in metadata.parts:
            self.parts.setdefault((part.of, event), []).append(part)
            self.probes[part.of] += 1
            self._tell(part, "begins", part.blocks, part.slots)
        every = self._in_flight()
        loads = [part for part in every if part.of == "load"]
        note_in_flight(self.note, every, loads, self._engine.kv_cache_manager.block_pool.blocks)

    def _launched(self, launch: Callable[..., None], *arguments: Any, **options: Any) -> None:
        of, event = _KINDS[options["is_store"]], options["event_idx"]
        self._due[of, event] = self.tick + self._ticks[of]
        self._copies[of].told = partial(self._copied, of, event)
        launch(*arguments, **options)

    def _copied(self, of: str, event: int, rows: Addresses) -> None:
        """Tell which blocks were copied, each with its place in the pool: by the addresses of the first layer's."""
        cache = next(iter(self._worker.gpu_kv_caches.values()))
        pool = next(iter(self._worker.cpu_kv_caches.values()))
        places: dict[int, int] = {}
        for source, target, _ in rows:
            at_cache, at_pool = (source, target) if of == "store" else (target, source)
            block, place = at_cache - cache.data_ptr(), at_pool - pool.data_ptr()
            if 0 <= block < cache.numel() and 0 <= place < pool.numel():
                places[block // cache.shape[1]] = place // cache.shape[1]
        for part in self.parts.get((of, event), ()):
            if of == "store":
                values = {"blocks": part.blocks, "indexes": part.indexes, "tokens": part.tokens}
                self.note("stored", [part.request], **values)
            self._tell(part, "copies", part.blocks, [places[block] for block in part.blocks])

    def _polled(self, poll: Callable[..., int], is_store: bool) -> int:
        """Have the copies of one direction that are due be done, and no others: under every schedule alike."""
        of, name = _KINDS[is_store], "_store_events" if is_store else "_load_events"
        every: Sequence[tuple[int, Any]] = getattr(self._worker, name)
        due = [pair for pair in every if self._due[of, pair[0]] <= self.tick]
        for _, event in due:
            event.synchronize()
        setattr(self._worker, name, list(due))
        over = poll(is_store)
        setattr(self._worker, name, list(every[len(due) :]))
        return over

    def _finished(self, finish: Callable[..., Any], names: set[str]) -> Any:
        worker = self._worker
        before = {of: set(getattr(worker, f"_pending_{of}_event_indices")) for of in _KINDS}
        results = finish(names)
        for of in _KINDS:
            for event in sorted(before[of] - getattr(worker, f"_pending_{of}_event_indices")):
                for part in self.parts.pop((of, event), ()):
                    self._end(part)
        return results

    def _end(self, part: Part) -> None:
        self.probes["store_of_ended"] += part.of == "store" and part.request not in self._engine.requests
        self.probes["load_of_aborted"] += part.of == "load" and part.request in self.aborted
        self._tell(part, "ends", part.blocks, part.slots)

    def _in_flight(self) -> list[Part]:
        return [part for parts in self.parts.values() for part in parts]

    def _tell(self, part: Part, phase: str, blocks: list[int], slots: list[int]) -> None:
        self.note(
            "transfer",
            [part.request],
            number=part.number,
            phase=phase,
            of=part.of,
            is_synchronous=False,
            blocks=blocks,
            slots=slots,
            lost=[],
            is_ahead=False,
        )


def around(holder: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Let a method of an object be called by a wrapper, which is given it first."""
    setattr(holder, name, partial(wrapper, getattr(holder, name)))
