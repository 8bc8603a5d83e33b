"""Batches of copies between addresses, as tasks of the simulated device: what CUDA calls `cuMemcpyBatchAsync`."""

from collections.abc import Callable, Sequence

import torch

from workers.simulated_torch import backend
from workers.simulated_torch.device import activate

# Addresses that bytes are copied from and to, each with their number.
Addresses = list[tuple[int, int, int]]


class BatchCopies:
    """Copies from some tensors to others, on the current stream, or at once where these are a CPU's.

    What may be read in any order is read as soon as it can be, on a stream that waits for nothing but the host.
    `told` is called with the addresses of a batch when its bytes are there.
    """

    def __init__(self, name: str, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        self._name, self._sources, self._targets = name, tuple(sources), tuple(targets)
        self._early = None if all(each.is_cpu for each in (*sources, *targets)) else backend.Stream()
        self.told: Callable[[Addresses], None] = _nobody

    def __call__(
        self,
        sources: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
        is_src_access_order_any: bool = False,
    ) -> None:
        """Enqueue a batch; the addresses are read now."""
        rows: Addresses = list(zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True))
        reads = [_bytes(self._sources, source, size) for source, _, size in rows]
        writes = [_bytes(self._targets, target, size) for _, target, size in rows]
        told = self.told
        held: list[torch.Tensor] = []

        def read(*views: torch.Tensor) -> None:
            held.extend(view.clone() for view in views)

        def write(*views: torch.Tensor) -> None:
            for kept, view in zip(held, views, strict=True):
                view.copy_(kept)
            told(rows)

        def copy(*views: torch.Tensor) -> None:
            read(*views[: len(rows)])
            write(*views[len(rows) :])

        if self._early is None:
            copy(*reads, *writes)
            return
        device, stream = activate(), backend.current_stream()
        device.name_stream(stream, self._name)
        if not is_src_access_order_any:
            device.enqueue(self._name, copy, reads, writes)
            return
        device.name_stream(self._early, f"{self._name}_early")
        with backend.stream(self._early):
            device.enqueue(f"{self._name}_early", read, reads)
        stream.wait_stream(self._early)
        device.enqueue(self._name, write, (), writes)


def _bytes(tensors: Sequence[torch.Tensor], address: int, size: int) -> torch.Tensor:
    """Return the bytes at an address, of whichever contiguous tensor of bytes it is in."""
    for tensor in tensors:
        offset = address - tensor.data_ptr()
        if 0 <= offset < tensor.numel():
            return tensor.view(-1)[offset : offset + size]
    raise ValueError(f"{size} bytes at {address} are in none of {len(tensors)} tensors")


def _nobody(rows: Addresses) -> None:
    """Tell nobody."""
