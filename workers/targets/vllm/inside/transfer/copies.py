"""Copies between a cache and a store: on two streams of a device, or at once on a CPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.targets.vllm.inside.transfer.flights import Flight


class Copies:
    """Copies of blocks, layer by layer; the store has the shape of the cache, with slots for blocks.

    Loads come `behind` an event, if there is one.
    """

    def __init__(
        self, caches: Mapping[str, torch.Tensor], groups: Mapping[str, int], store: list[torch.Tensor]
    ) -> None:
        self.names = list(caches)
        self._groups = [groups[name] for name in caches]
        self.cache, self.store = list(caches.values()), store
        self.behind: Any = None
        self._is_device = self.cache[0].device.type != "cpu"
        self._is_simulated = self.cache[0].device.type == "sim"
        self.loads: Any = new_stream() if self._is_device else None
        self.stores: Any = new_stream() if self._is_device else None

    def load(self, flight: Flight, done: Callable[[], None]) -> None:
        """Copy what a load brings; nothing of the engine's own stream is waited for."""
        if self.behind is not None:
            self.behind.wait(self.loads)
        pairs = [(self.store, self.cache, slot, block, group) for slot, block, group in _arriving(flight)]
        flight.landed = self._copy("load_blocks", self.loads, pairs, done)

    def save(self, flight: Flight, done: Callable[[], None]) -> None:
        """Copy what a store keeps, behind what the engine has launched."""
        if self._is_device:
            launched().wait(self.stores)
        pairs = [(self.cache, self.store, block, slot, group) for slot, block, group in _arriving(flight)]
        flight.landed = self._copy("store_blocks", self.stores, pairs, done)

    def _copy(
        self,
        name: str,
        stream: Any,
        pairs: list[tuple[list[torch.Tensor], list[torch.Tensor], int, int, int]],
        done: Callable[[], None],
    ) -> dict[str, Any]:
        """Copy layer by layer; return the event of each layer, by name."""
        landed: dict[str, Any] = {}
        for layer, layer_name in enumerate(self.names):
            own = [pair for pair in pairs if pair[-1] == self._groups[layer]]
            sources = [source[layer][index] for source, _, index, _, _ in own]
            targets = [target[layer][index] for _, target, _, index, _ in own]
            told = done if layer == len(self.names) - 1 else _nothing
            if not self._is_device:
                _move(told, *sources, *targets)
                continue
            with torch.cuda.stream(stream):
                if self._is_simulated:
                    activate().enqueue(name, _task(told), sources, targets)
                else:
                    _move(told, *sources, *targets)
                landed[layer_name] = _event()
                landed[layer_name].record(stream)
        return landed

    def wait_on_stream(self, flight: Flight, layer: str) -> None:
        """Let the current stream wait for one layer of a transfer."""
        if layer in (flight.landed or ()):
            flight.landed[layer].wait(torch.cuda.current_stream())

    def wait(self, flight: Flight) -> None:
        """Wait for a transfer on the host."""
        for event in (flight.landed or {}).values():
            event.synchronize()


def is_of_all_blocks(tensor: torch.Tensor, caches: Sequence[torch.Tensor]) -> bool:
    """Tell whether a tensor is of all blocks of one of some caches."""
    return any(
        (cache.shape[:1], _stride_of(cache)) == (tensor.shape[:1], _stride_of(tensor))
        and cache.data_ptr() <= tensor.data_ptr() < cache.data_ptr() + _stride_of(cache)
        for cache in caches
    )


def new_store(caches: Mapping[str, torch.Tensor], num_slots: int) -> list[torch.Tensor]:
    """Return an empty store of so many slots for blocks of some caches."""
    return [torch.zeros((num_slots, *each.shape[1:]), dtype=each.dtype, device=each.device) for each in caches.values()]


def new_stream() -> Any:
    """Return a new stream of the device."""
    stream: Any = torch.cuda.Stream
    return stream()


def launched() -> Any:
    """Return an event behind all that the current stream has been given."""
    event = _event()
    event.record(torch.cuda.current_stream())
    return event


def _event() -> Any:
    event: Any = torch.cuda.Event
    return event()


def _arriving(flight: Flight) -> list[tuple[int, int, int]]:
    """Return slots and blocks of a transfer, each with its group of layers, less what is lost."""
    pairs = enumerate(zip(flight.slots, flight.blocks, strict=True))
    return [(slot, block, flight.group(index)) for index, (slot, block) in pairs if index not in flight.lost]


def _stride_of(tensor: torch.Tensor) -> int:
    """Return the bytes from one part of a tensor's first dimension to the next."""
    return tensor.stride(0) * tensor.element_size() if tensor.dim() else 0


def _nothing() -> None:
    """Tell nothing."""


def _task(done: Callable[[], None]) -> Callable[..., None]:
    def move(*views: torch.Tensor) -> None:
        _move(done, *views)

    return move


def _move(done: Callable[[], None], *views: torch.Tensor) -> None:
    """Copy the first half of some tensors to the second, and tell that it is done."""
    half = len(views) // 2
    for source, target in zip(views[:half], views[half:], strict=True):
        target.copy_(source, non_blocking=True)
    done()
