"""Sleep mode of a device: what sleeps is overwritten, so that whoever uses it shows that he does.

In a server an allocator unmaps memory, which a simulated device has none of. What sleeps, and what of that is kept on
the host meanwhile, vLLM says by the tags of its pools.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import vllm.device_allocator
from vllm.device_allocator.sleep_mode_backend import CuMemBackend

# What memory holds that was given up, byte by byte: of floats a large number, for what is masked is multiplied by zero.
_LOST_BYTE = 0x46
_LOST = 12689.568359375


class SimulatedSleep(CuMemBackend):  # type: ignore[misc]
    """Backend of one worker's sleep, and what it asks to give memory up and to have it again."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker
        # Of each tag that sleeps its parts, each with what is kept of it.
        self._asleep: dict[str, list[tuple[torch.Tensor, torch.Tensor | None]]] = {}

    @classmethod
    def put_under(cls, engine: Any) -> None:
        """Make an engine sleep this way."""
        worker = engine.model_executor.driver_worker.worker
        if not isinstance(worker._sleep_mode_backend, cls):
            worker._sleep_mode_backend = cls(worker)

    def suspend(self, level: int = 1) -> None:
        """Give memory up, as vLLM does at a level."""
        with self._asked():
            super().suspend(level)

    def resume(self, tags: list[str] | None = None) -> None:
        """Have memory again, as vLLM does for tags."""
        with self._asked():
            super().resume(tags)

    @torch.no_grad()
    def sleep(self, offload_tags: Sequence[str]) -> None:
        """Give all memory up, and keep elsewhere what is under some tags."""
        for tag, parts in self._parts().items():
            if tag not in self._asleep:
                self._asleep[tag] = [(part, part.cpu().clone() if tag in offload_tags else None) for part in parts]
                for part in parts:
                    part.fill_(_LOST if part.is_floating_point() else _LOST_BYTE)

    @torch.no_grad()
    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Have what was kept again, of some tags and of those that no wake leaves asleep; of all without any."""
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
    def _asked(self) -> Iterator[None]:
        """Let vLLM ask this for memory, in the place of its allocator of a GPU's."""
        module: Any = vllm.device_allocator
        before, module.get_mem_allocator_instance = module.get_mem_allocator_instance, lambda: self
        try:
            yield
        finally:
            module.get_mem_allocator_instance = before

    def _parts(self) -> Mapping[str, Sequence[torch.Tensor]]:
        """Return what there is of memory under each tag; on a GPU weights and caches alone, which are in no pool."""
        pools = getattr(self._worker, "pools", None)
        return {"weights": self._weights(), "kv_cache": self._caches()} if pools is None else pools.parts()

    def _weights(self) -> list[torch.Tensor]:
        """Return the parameters and buffers of the target and of its drafter, each once."""
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
