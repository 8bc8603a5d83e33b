"""Block copies between KV cache and KV store: on two device streams, on a CPU at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.targets.vllm.inside.transfer.flights import Flight


class Copies:
    """Copies blocks between the KV cache and a store with blocks of equal size, layer by layer.

    If the event `loads_after` is set, loads start after it.
    """

    def __init__(
        self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int], store: list[torch.Tensor]
    ) -> None:
        self.names = list(caches)
        self._groups = [groups[name] for name in caches]
        self.cache, self.store = list(caches.values()), store
        self.loads_after: Any = None
        self._is_device = self.cache[0].device.type != "cpu"
        self._is_simulated = self.cache[0].device.type == "sim"
        self.loads: Any = new_stream() if self._is_device else None
        self.stores: Any = new_stream() if self._is_device else None

    def load(self, flight: Flight, done: Callable[[], None]) -> None:
        """Copy the blocks of a load into the KV cache, on a stream of its own."""
        if self.loads_after is not None:
            self.loads_after.wait(self.loads)
        pairs = [(self.store, self.cache, slot, block, group) for slot, block, group in _copied_pairs(flight)]
        flight.layer_events = self._copy("load_blocks", self.loads, pairs, done)

    def save(self, flight: Flight, done: Callable[[], None]) -> None:
        """Copy the blocks of a store from the KV cache, after the engine's launched work."""
        if self._is_device:
            launched_event().wait(self.stores)
        pairs = [(self.cache, self.store, block, slot, group) for slot, block, group in _copied_pairs(flight)]
        flight.layer_events = self._copy("store_blocks", self.stores, pairs, done)

    def _copy(
        self,
        name: str,
        stream: Any,
        pairs: list[tuple[list[torch.Tensor], list[torch.Tensor], int, int, int]],
        done: Callable[[], None],
    ) -> dict[str, Any]:
        """Copy blocks layer by layer; return each layer's event, recorded after its copy."""
        layer_events: dict[str, Any] = {}
        for layer, layer_name in enumerate(self.names):
            own = [pair for pair in pairs if pair[-1] == self._groups[layer]]
            sources = [source[layer][index] for source, _, index, _, _ in own]
            targets = [target[layer][index] for _, target, _, index, _ in own]
            callback = done if layer == len(self.names) - 1 else _do_nothing
            if not self._is_device:
                _move(callback, *sources, *targets)
                continue
            with torch.cuda.stream(stream):
                if self._is_simulated:
                    activate().enqueue(name, _task(callback), sources, targets)
                else:
                    _move(callback, *sources, *targets)
                layer_events[layer_name] = _event()
                layer_events[layer_name].record(stream)
        return layer_events

    def wait_on_stream(self, flight: Flight, layer: str) -> None:
        """Make the current stream wait until one layer of a transfer has been copied."""
        if layer in (flight.layer_events or ()):
            flight.layer_events[layer].wait(torch.cuda.current_stream())

    def wait(self, flight: Flight) -> None:
        """Block the host until all layers of a transfer have been copied."""
        for event in (flight.layer_events or {}).values():
            event.synchronize()


def covers_all_blocks(tensor: torch.Tensor, caches: Sequence[torch.Tensor]) -> bool:
    """Return whether a tensor is a view of all blocks of one of the KV caches."""
    return any(
        (cache.shape[:1], _stride_of(cache)) == (tensor.shape[:1], _stride_of(tensor))
        and cache.data_ptr() <= tensor.data_ptr() < cache.data_ptr() + _stride_of(cache)
        for cache in caches
    )


def new_store(caches: Mapping[str, torch.Tensor], num_slots: int) -> list[torch.Tensor]:
    """Return a zeroed KV store: one tensor with `num_slots` blocks per layer."""
    return [torch.zeros((num_slots, *each.shape[1:]), dtype=each.dtype, device=each.device) for each in caches.values()]


def new_stream() -> Any:
    """Create a stream on the device."""
    stream: Any = torch.cuda.Stream
    return stream()


def launched_event() -> Any:
    """Return an event recorded after all work launched on the current stream."""
    event = _event()
    event.record(torch.cuda.current_stream())
    return event


def _event() -> Any:
    event: Any = torch.cuda.Event
    return event()


def _copied_pairs(flight: Flight) -> list[tuple[int, int, int]]:
    """Return (slot, block, KV-cache group) of each block to copy, without lost blocks."""
    pairs = enumerate(zip(flight.slots, flight.blocks, strict=True))
    return [(slot, block, flight.group(index)) for index, (slot, block) in pairs if index not in flight.lost]


def _stride_of(tensor: torch.Tensor) -> int:
    """Return the bytes between consecutive elements of a tensor's first dimension."""
    return tensor.stride(0) * tensor.element_size() if tensor.dim() else 0


def _do_nothing() -> None:
    """Do nothing when a layer has been copied; only the last layer ends the transfer."""


def _task(done: Callable[[], None]) -> Callable[..., None]:
    def move(*views: torch.Tensor) -> None:
        _move(done, *views)

    return move


def _move(done: Callable[[], None], *views: torch.Tensor) -> None:
    """Copy the first half of the tensors to the second half, then call `done`."""
    half = len(views) // 2
    for source, target in zip(views[:half], views[half:], strict=True):
        target.copy_(source, non_blocking=True)
    done()
