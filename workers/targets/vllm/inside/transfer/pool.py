"""Copies of vLLM's offloading connector as tasks of the simulated device, and its pool of memory of the host."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

import torch

from workers.targets.simulated_torch.device import activate

# Key of the connector's extra configuration: how many chunks its pool is to hold.
CHUNKS = "chunks"


def sized_by_chunks(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return what describes an engine to its offloading connector, with the bytes of so many chunks."""
    from vllm.utils.math_utils import round_up  # noqa: PLC0415
    from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec  # noqa: PLC0415

    @wraps(before)
    def build_offloading_config(vllm_config: Any, kv_cache_config: Any) -> Any:
        config = before(vllm_config, kv_cache_config)
        chunk = config.worker_kv_bytes_per_block * config.cache.blocks_per_chunk
        pool = config.extra_config[CHUNKS] * round_up(chunk, CPUOffloadingSpec.BLOCK_SIZE_ALIGNMENT)
        return replace(config, extra_config={**config.extra_config, "cpu_bytes_to_use": pool})

    return build_offloading_config


def worker_of_any_device(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes the connector's worker once, whatever the device is."""

    @wraps(before)
    def get_worker(self: Any, caches: Any) -> Any:
        if self._worker is None:
            self._worker = self.create_worker(caches)
        return self._worker

    return get_worker


def copying_by_tasks(before: Callable[..., None]) -> Callable[..., None]:
    """Return what makes the handler of one direction of copies, which are tasks of the device from there on."""

    @wraps(before)
    def prepare(self: Any, *arguments: Any, **options: Any) -> None:
        tensor: Any = torch.Tensor
        # It asserts that caches are CUDA's; those of any device here stand for that.
        tensor.is_cuda = property(lambda each: True)
        try:
            before(self, *arguments, **options)
        finally:
            del tensor.is_cuda
        self._swap_blocks_batch = Swaps(self)

    return prepare


@dataclass(frozen=True, slots=True)
class _Span:
    """A tensor of pages of one size, and where it lies."""

    tensor: torch.Tensor
    first: int
    page: int

    def row(self, address: int) -> int | None:
        """Return the page that begins at an address, None if it is not in the tensor."""
        offset = address - self.first
        inside = 0 <= offset < self.tensor.numel()
        return offset // self.page if inside else None


def _span(tensor: torch.Tensor, page: int) -> _Span:
    assert tensor.is_contiguous(), "pages lie one behind the other"
    return _Span(tensor, tensor.data_ptr(), page)


class Swaps:
    """Copy kernel of one direction: pages at addresses of the cache and of the pool, on the current stream.

    What it is asked to read in any order it reads as soon as it likes, on a stream of its own that waits for nothing
    but the host. `told` is called with the pages of the cache and of the pool when a copy's bytes are there.
    """

    def __init__(self, handler: Any) -> None:
        self._name = "store_blocks" if handler.gpu_to_cpu else "load_blocks"
        caches, pools = handler.src_tensors, handler.dst_tensors
        if not handler.gpu_to_cpu:
            caches, pools = pools, caches
        pages = [cache.shape[1] for cache in caches]
        self._caches = [_span(cache, page) for cache, page in zip(caches, pages, strict=True)]
        self._pools = [_span(pool, page) for pool, page in zip(pools, pages, strict=True)]
        self._is_store: bool = handler.gpu_to_cpu
        self._is_device = self._caches[0].tensor.device.type != "cpu"
        self._early: Any = _stream() if self._is_device else None
        self.told: Callable[[list[int], list[int]], None] = _nobody

    @property
    def pools(self) -> list[torch.Tensor]:
        return [each.tensor for each in self._pools]

    def __call__(
        self,
        sources: torch.Tensor,
        targets: torch.Tensor,
        sizes: torch.Tensor,
        is_src_access_order_any: bool = False,
    ) -> None:
        rows = list(zip(sources.tolist(), targets.tolist(), sizes.tolist(), strict=True))
        read, written = (self._caches, self._pools) if self._is_store else (self._pools, self._caches)
        reads = [_bytes(read, source, size) for source, _, size in rows]
        writes = [_bytes(written, target, size) for _, target, size in rows]
        pages = self._pages((source, target) for source, target, _ in rows)
        told = self.told
        held: list[torch.Tensor] = []

        def read_all(*views: torch.Tensor) -> None:
            held.extend(view.clone() for view in views)

        def write_all(*views: torch.Tensor) -> None:
            for kept, view in zip(held, views, strict=True):
                view.copy_(kept)
            told(*pages)

        def copy_all(*views: torch.Tensor) -> None:
            read_all(*views[: len(reads)])
            write_all(*views[len(reads) :])

        if not self._is_device:
            copy_all(*reads, *writes)
            return
        stream: Any = torch.cuda.current_stream()
        activate().name_stream(stream, "stores" if self._is_store else "loads")
        if not is_src_access_order_any:
            activate().enqueue(self._name, copy_all, reads, writes)
            return
        activate().name_stream(self._early, f"{self._name}_early")
        with torch.cuda.stream(self._early):
            activate().enqueue(f"{self._name}_early", read_all, reads)
        stream.wait_stream(self._early)
        activate().enqueue(self._name, write_all, (), writes)

    def _pages(self, addresses: Iterable[tuple[int, int]]) -> tuple[list[int], list[int]]:
        """Return the pages of the first layer's cache that are copied, and those of the pool beside them."""
        pairs = []
        for source, target in addresses:
            at_cache, at_pool = (source, target) if self._is_store else (target, source)
            block, slot = self._caches[0].row(at_cache), self._pools[0].row(at_pool)
            if block is not None and slot is not None:
                pairs.append((block, slot))
        return [block for block, _ in pairs], [slot for _, slot in pairs]


class Event:
    """Event of a device whose work is done when it is launched."""

    def __init__(self, enable_timing: bool = False) -> None:
        """Make one; nothing takes any time."""

    def record(self, stream: Any = None) -> None:
        """Do nothing: what comes before is done."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing: what comes before is done."""

    def elapsed_time(self, end: "Event") -> float:
        return 0.0


class TorchWithEvents:
    """PyTorch where no device has events, with such ones."""

    Event = Event

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _stream() -> Any:
    stream: Any = torch.cuda.Stream
    return stream()


def _bytes(spans: Sequence[_Span], address: int, size: int) -> torch.Tensor:
    """Return the bytes at an address, of whichever tensor it is in."""
    for span in spans:
        if span.row(address) is not None:
            offset = address - span.first
            return span.tensor.view(-1)[offset : offset + size]
    raise AssertionError(f"{size} bytes at {address} are in none of {len(spans)} tensors")


def _nobody(blocks: list[int], slots: list[int]) -> None:
    """Tell nobody."""
