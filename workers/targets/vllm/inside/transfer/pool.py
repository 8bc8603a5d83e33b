"""Replacements in vLLM's offloading connectors: CPU pool size, device check, block copies."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch

from workers.simulated_torch.batch_copies import BatchCopies

# Key of the extra configuration: number of chunks in the pool.
CHUNKS = "chunks"


def set_pool_chunks(before: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `build_offloading_config` to take the CPU pool's size in chunks, not in bytes."""
    from vllm.utils.math_utils import round_up  # noqa: PLC0415
    from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec  # noqa: PLC0415

    @wraps(before)
    def build_offloading_config(vllm_config: Any, kv_cache_config: Any) -> Any:
        config = before(vllm_config, kv_cache_config)
        chunk = config.worker_kv_bytes_per_block * config.cache.blocks_per_chunk
        pool = config.extra_config[CHUNKS] * round_up(chunk, CPUOffloadingSpec.BLOCK_SIZE_ALIGNMENT)
        return replace(config, extra_config={**config.extra_config, "cpu_bytes_to_use": pool})

    return build_offloading_config


def allow_any_device(before: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `CPUOffloadingSpec.get_worker` to accept devices other than CUDA."""

    @wraps(before)
    def get_worker(self: Any, caches: Any) -> Any:
        if self._worker is None:
            self._worker = self.create_worker(caches)
        return self._worker

    return get_worker


def copy_by_tasks(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap a copy handler's constructor so that it copies blocks by device tasks."""

    @wraps(before)
    def prepare(self: Any, *arguments: Any, **options: Any) -> None:
        tensor: Any = torch.Tensor
        # vLLM asserts CUDA caches; caches of every device here count as such.
        tensor.is_cuda = property(lambda each: True)
        try:
            before(self, *arguments, **options)
        finally:
            del tensor.is_cuda
        name = "store_blocks" if self.gpu_to_cpu else "load_blocks"
        self._swap_blocks_batch = BatchCopies(name, self.src_tensors, self.dst_tensors)

    return prepare


class BlockCopies(BatchCopies):
    """Copies blocks by id between per-layer tensors, on one stream."""

    def __init__(
        self, sources: Mapping[str, torch.Tensor], targets: Mapping[str, torch.Tensor], stream: Any, is_any: bool
    ) -> None:
        name = "store_blocks" if all(each.is_cpu for each in targets.values()) else "load_blocks"
        super().__init__(name, tuple(sources.values()), tuple(targets.values()))
        self._stream, self._is_any = stream, is_any

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Enqueue a copy of each source block to its target block, layer by layer."""
        rows = [
            (one.data_ptr() + source * one.stride(0), other.data_ptr() + target * other.stride(0), one.stride(0))
            for one, other in zip(self._sources, self._targets, strict=True)
            for source, target in zip(sources, targets, strict=True)
        ]
        on: Any = torch.cuda.stream
        with on(self._stream):
            at, to, sizes = (torch.tensor(column, dtype=torch.int64) for column in zip(*rows, strict=True))
            self(at, to, sizes, self._is_any)


def build_block_copies(before: Callable[..., Any]) -> Callable[..., BlockCopies]:
    """Replace `build_params` to return `BlockCopies`, which copies by device tasks."""
    from vllm.v1.simple_kv_offload.cuda_mem_ops import CU_MEMCPY_SRC_ACCESS_ORDER_ANY  # noqa: PLC0415

    @wraps(before)
    def build_params(
        sources: Mapping[str, torch.Tensor],
        targets: Mapping[str, torch.Tensor],
        stream: Any,
        src_access_order: int = CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    ) -> BlockCopies:
        return BlockCopies(sources, targets, stream, src_access_order == CU_MEMCPY_SRC_ACCESS_ORDER_ANY)

    return build_params


def copy_blocks_by_tasks(before: Callable[..., None]) -> Callable[..., None]:
    """Replace `copy_blocks` to enqueue the copies as device tasks."""

    @wraps(before)
    def copy_blocks(sources: list[int], targets: list[int], copies: BlockCopies) -> None:
        if sources:
            copies.copy(sources, targets)

    return copy_blocks


def launch_without_thread(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap `launch_copy` so that its loop runs in the calling thread."""

    @wraps(before)
    def launch_copy(self: Any, *arguments: Any, **options: Any) -> None:
        before(self, *arguments, **options)
        self._queue.put(None)
        self._copy_loop(self._queue, None, self._load_stream, self._store_stream)

    return launch_copy


class NoThread:
    """Stand-in for `threading.Thread` that starts no thread."""

    def __init__(self, **options: Any) -> None:
        """Ignore the thread's function, which `launch_without_thread` calls itself."""

    def start(self) -> None:
        """Do nothing: `launch_without_thread` runs the loop in the caller."""

    def join(self, timeout: float | None = None) -> None:
        """Return at once: no thread was started."""


class Event:
    """Stand-in for an accelerator event on a CPU, where all earlier work has already run."""

    def __init__(self, enable_timing: bool = False) -> None:
        """Ignore `enable_timing`: the elapsed time is always 0."""

    def record(self, stream: Any = None) -> None:
        """Do nothing: on a CPU, all earlier work has already run."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Return at once: a CPU has already run all earlier work."""

    def elapsed_time(self, end: "Event") -> float:
        return 0.0


class TorchWithEvents:
    """The torch module with `Event` as its event class, for a CPU build without events."""

    Event = Event

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def set_pool_blocks(before: Callable[..., None]) -> Callable[..., None]:
    """Wrap the simple connector's constructor to take the CPU pool's size in blocks."""

    @wraps(before)
    def init(self: Any, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        of_all = kv_cache_config.kv_cache_tensors[0].size
        extra["cpu_bytes_to_use"] = (extra[CHUNKS] + 1) * (of_all // kv_cache_config.num_blocks)
        before(self, vllm_config, role, kv_cache_config)

    return init


_BY_TASKS = "it copies by a GPU's driver: here copies are device tasks"
_BY_NO_THREAD = "no schedule decides when its thread starts a copy: here copies start when they are requested"
_COPIES = "vllm.v1.simple_kv_offload.copy_backend"
# Module, name, reason, and the function that makes the replacement.
SIMPLE_OFFLOADING_REPLACEMENTS: tuple[tuple[str, str, str, Callable[[Any], Any]], ...] = (
    (
        "vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector",
        "SimpleCPUOffloadConnector.__init__",
        "its pool size is set in bytes, and here in blocks, whose size in bytes only vLLM knows",
        set_pool_blocks,
    ),
    (
        "vllm.v1.simple_kv_offload.worker",
        "pin_tensor",
        "there is no GPU driver here to pin memory",
        lambda before: lambda tensor: None,
    ),
    (_COPIES, "build_params", _BY_TASKS, build_block_copies),
    (_COPIES, "copy_blocks", _BY_TASKS, copy_blocks_by_tasks),
    (_COPIES, "threading", _BY_NO_THREAD, lambda before: SimpleNamespace(Thread=NoThread)),
    (_COPIES, "DmaCopyBackend.launch_copy", _BY_NO_THREAD, launch_without_thread),
)
