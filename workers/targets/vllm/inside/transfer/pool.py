"""Replacements in vLLM's offloading connector: the size of its pool, its device, and its copies."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import torch

from workers.targets.simulated_torch.batch_copies import BatchCopies

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
        name = "store_blocks" if self.gpu_to_cpu else "load_blocks"
        self._swap_blocks_batch = BatchCopies(name, self.src_tensors, self.dst_tensors)

    return prepare


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
