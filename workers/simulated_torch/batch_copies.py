"""Device tasks that copy a batch of address ranges, like CUDA's `cuMemcpyBatchAsync`."""

from collections.abc import Callable, Sequence

import torch

from workers.simulated_torch import backend
from workers.simulated_torch.device import activate

# Source address, target address and number of bytes of each copy.
Addresses = list[tuple[int, int, int]]


class BatchCopies:
    """Copies address ranges of `sources` into `targets`, as tasks on the current stream.

    If all tensors are on the CPU, they copy immediately. Sources that may be read in any order are read as early as
    possible: on a separate stream that waits only for the host. `on_complete` is called with the addresses of a batch
    once its bytes are copied.
    """

    def __init__(self, name: str, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        self._name, self._sources, self._targets = name, tuple(sources), tuple(targets)
        self._early = None if all(each.is_cpu for each in (*sources, *targets)) else backend.Stream()
        self.on_complete: Callable[[Addresses], None] = _ignore

    def __call__(
        self,
        sources: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
        is_src_access_order_any: bool = False,
    ) -> None:
        """Enqueue a batch of copies; addresses and sizes are read immediately."""
        rows: Addresses = list(zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True))
        reads = [_bytes(self._sources, source, size) for source, _, size in rows]
        writes = [_bytes(self._targets, target, size) for _, target, size in rows]
        on_complete = self.on_complete
        held: list[torch.Tensor] = []

        def read(*views: torch.Tensor) -> None:
            held.extend(view.clone() for view in views)

        def write(*views: torch.Tensor) -> None:
            for kept, view in zip(held, views, strict=True):
                view.copy_(kept)
            on_complete(rows)

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
    """Return `size` bytes at an address, as a view of the byte tensor that contains it."""
    for tensor in tensors:
        offset = address - tensor.data_ptr()
        if 0 <= offset < tensor.numel():
            return tensor.view(-1)[offset : offset + size]
    raise ValueError(f"{size} bytes at {address} are in none of {len(tensors)} tensors")


def _ignore(rows: Addresses) -> None:
    """Do nothing when a batch is copied: the default of `on_complete`."""
