"""Base class of the observers of vLLM's own offloading connectors."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from scenarios.events import DisturbTransfer
from scenarios.spec import Offloading
from workers.simulated_torch.batch_copies import Addresses
from workers.targets.vllm.inside.transfer.flights import Note
from workers.targets.vllm.inside.transfer.planner import blocks_used


@dataclass(slots=True)
class OwnTransfer:
    """A load or store of one request in flight: its KV-cache blocks and CPU-pool slots.

    A store copies blocks at `indexes` of the request's block table; their content is computed from `tokens`.
    """

    number: int
    of: str
    request: str
    blocks: list[int]
    slots: list[int]
    indexes: list[int]
    tokens: list[int]


class OwnTransfers:
    """Observes the KV transfers of an engine with a connector of vLLM (`agent`: worker side).

    `is_dummy` is true during a dummy batch, in which all slots are padding.
    """

    def __init__(self, engine: Any, agent: Any, spec: Offloading) -> None:
        self.agent, self.is_dummy = agent, False
        self._ticks: Mapping[str, int] = {"load": spec.load_ticks, "store": spec.store_ticks}
        self._engine = engine.scheduler
        agent.touched = self.touched

    def begin(self, probes: Counter[str], note: Note) -> None:
        """Reset for a new trace: tick 0, no aborted requests."""
        self.probes, self.note, self.tick = probes, note, 0
        self.aborted: set[str] = set()

    def disturb(self, event: DisturbTransfer, request: str) -> None:
        raise ValueError("vLLM's own transfers cannot be disturbed")

    def touched(self) -> tuple[list[int], list[int]] | None:
        """Return the block ids that the running step reads and writes; None if unknown."""
        if self.is_dummy:
            return [], []
        if not self.agent.has_connector_metadata():
            return None
        reads, writes = self.agent._get_connector_metadata().touched
        return sorted(reads), sorted(writes)

    def _planned(self, build: Callable[..., Any], output: Any, *arguments: Any, **options: Any) -> Any:
        """Add the step's accessed blocks and preempted requests to the connector's metadata."""
        metadata = build(output, *arguments, **options)
        requests, manager = self._engine.requests, self._engine.kv_cache_manager
        metadata.touched = blocks_used(requests, manager, output, self._engine.block_size)
        metadata.preempted = set(output.preempted_req_ids or ())
        return metadata

    def _record_copies(self, transfer: OwnTransfer, blocks: list[int], slots: list[int]) -> None:
        """Record copied blocks and slots; for a store, also the tokens they should contain."""
        if transfer.of == "store":
            kept = {"blocks": transfer.blocks, "indexes": transfer.indexes, "tokens": transfer.tokens}
            self.note("stored", [transfer.request], **kept)
        self._record(transfer, "copies", blocks, slots)

    def _record_end(self, transfer: OwnTransfer, is_ahead: bool = False) -> None:
        self.probes["store_of_ended"] += transfer.of == "store" and transfer.request not in self._engine.requests
        self.probes["load_of_aborted"] += transfer.of == "load" and transfer.request in self.aborted
        self._record(transfer, "ends", transfer.blocks, transfer.slots, is_ahead)

    def _record(
        self, transfer: OwnTransfer, phase: str, blocks: list[int], slots: list[int], is_ahead: bool = False
    ) -> None:
        self.note(
            "transfer",
            [transfer.request],
            number=transfer.number,
            phase=phase,
            of=transfer.of,
            is_synchronous=False,
            blocks=blocks,
            slots=slots,
            num_states=0,
            lost=[],
            is_ahead=is_ahead,
        )


def copied_blocks(of: str, rows: Addresses, cache: torch.Tensor, pool: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Yield (block, pool slot) of each copied address range in one layer's tensors."""
    for source, target, _ in rows:
        at_cache, at_pool = (source, target) if of == "store" else (target, source)
        block, slot = at_cache - cache.data_ptr(), at_pool - pool.data_ptr()
        if 0 <= block < cache.numel() and 0 <= slot < pool.numel():
            yield block // cache.shape[1], slot // cache.shape[1]


def wrap_method(holder: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Replace a method of an object by `wrapper`, which gets the method as first argument."""
    setattr(holder, name, partial(wrapper, getattr(holder, name)))
