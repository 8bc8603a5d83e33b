"""Sleep mode that overwrites memory in place of unmapping it, so that any use is noticed.

In a server, an allocator unmaps the memory; the simulated device cannot. vLLM's pool tags say what sleeps, and what of
it is kept on the host.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import vllm.device_allocator
from vllm.device_allocator.sleep_mode_backend import CuMemBackend

# Content of discarded memory, per byte: as floats a large number, because masked values are multiplied by zero.
_LOST_BYTE = 0x46
_LOST = 12689.568359375


class SimulatedSleep(CuMemBackend):  # type: ignore[misc]
    """Sleep backend of one worker, and the memory allocator that it uses."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        # By sleeping tag: its tensors, each with the copy that is kept of it.
        self._asleep: dict[str, list[tuple[torch.Tensor, torch.Tensor | None]]] = {}

    @classmethod
    def install(cls, engine: Any) -> None:
        """Install this sleep backend in the worker of an engine."""
        worker = engine.model_executor.driver_worker.worker
        if not isinstance(worker._sleep_mode_backend, cls):
            worker._sleep_mode_backend = cls(worker)

    def suspend(self, level: int = 1) -> None:
        """Discard or offload the memory with the tags that vLLM selects for a sleep level."""
        with self._as_allocator():
            super().suspend(level)

    def resume(self, tags: list[str] | None = None) -> None:
        """Restore the memory of these tags (None: all), as vLLM's backend requests it."""
        with self._as_allocator():
            super().resume(tags)

    @torch.no_grad()
    def sleep(self, offload_tags: Sequence[str]) -> None:
        """Overwrite the worker's memory, after copying the memory of `offload_tags` to the host."""
        for tag, parts in self._parts().items():
            if tag not in self._asleep:
                self._asleep[tag] = [(part, part.cpu().clone() if tag in offload_tags else None) for part in parts]
                for part in parts:
                    part.fill_(_LOST if part.is_floating_point() else _LOST_BYTE)

    @torch.no_grad()
    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Restore the memory of these tags (None: all) and of the tags that vLLM cannot defer."""
        woken = [
            tag
            for tag in self._asleep
            if tags is None or tag in tags or tag not in vllm.device_allocator.DEFERRABLE_TAGS
        ]
        for tag, parts in self._parts().items():
            in_use = {part.data_ptr() for part in parts}
            for part, kept in self._asleep.pop(tag) if tag in woken else ():
                if kept is not None and part.data_ptr() in in_use:
                    part.copy_(kept)

    @contextmanager
    def _as_allocator(self) -> Iterator[None]:
        """Return a context in which vLLM uses this object as its memory allocator."""
        module: Any = vllm.device_allocator
        before, module.get_mem_allocator_instance = module.get_mem_allocator_instance, lambda: self
        try:
            yield
        finally:
            module.get_mem_allocator_instance = before

    def _parts(self) -> Mapping[str, Sequence[torch.Tensor]]:
        """Return the tensors of each tag, from the worker's pools if it has any."""
        pools = getattr(self._worker, "pools", None)
        return {"weights": self._weights(), "kv_cache": self._caches()} if pools is None else pools.parts()

    def _weights(self) -> list[torch.Tensor]:
        """Return the float parameters and buffers of target and drafter, each tensor once."""
        runner = self._worker.model_runner
        tensors = [
            tensor
            for model in (runner.get_model(), runner.get_draft_model())
            if model is not None
            for tensor in (*model.parameters(), *model.buffers())
            if tensor.is_floating_point()
        ]
        return list({id(tensor): tensor for tensor in tensors}.values())

    def _caches(self) -> list[torch.Tensor]:
        return [cache for cache in self._worker.model_runner.kv_caches if isinstance(cache, torch.Tensor)]
