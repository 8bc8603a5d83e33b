"""Sleep mode of a device: what sleeps is overwritten, so that whoever uses it shows that he does.

In a server an allocator unmaps memory, which a simulated device has none of. At level 1 weights are kept on the host,
at level 2 they are lost; caches are lost at either.
"""

from typing import Any

import torch
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

# What memory holds that was given up, byte by byte: of floats a large number, for what is masked is multiplied by zero.
_LOST_BYTE = 0x46
_LOST = 12689.568359375


class SimulatedSleep(SleepModeBackend):  # type: ignore[misc]
    """Backend of one worker's sleep."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._runner = worker.model_runner
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    @classmethod
    def put_under(cls, engine: Any) -> None:
        """Make an engine sleep this way."""
        worker = engine.model_executor.driver_worker.worker
        if not isinstance(worker._sleep_mode_backend, cls):
            worker._sleep_mode_backend = cls(worker)

    @torch.no_grad()
    def suspend(self, level: int = 1) -> None:
        """Give up caches and weights; keep the weights elsewhere at level 1."""
        self._state = "SUSPENDED"
        weights = self._weights()
        self._kept = [(weight, weight.cpu().clone()) for weight in weights] if level == 1 else []
        for tensor in (*weights, *self._caches()):
            tensor.fill_(_LOST if tensor.is_floating_point() else _LOST_BYTE)

    @torch.no_grad()
    def resume(self, tags: list[str] | None = None) -> None:
        """Have weights again that were kept."""
        if tags is None or "weights" in tags:
            for weight, kept in self._kept:
                weight.copy_(kept)
            self._kept = []
        self._state = "RUNNING"

    def _weights(self) -> list[torch.Tensor]:
        """Return the parameters and buffers of the target and of its drafter, each once."""
        models = [self._runner.get_model(), self._runner.get_draft_model()]
        tensors = [
            tensor
            for model in models
            if model is not None
            for tensor in (*model.parameters(), *model.buffers())
            if tensor.is_floating_point()
        ]
        return list({id(tensor): tensor for tensor in tensors}.values())

    def _caches(self) -> list[torch.Tensor]:
        return [cache for cache in self._runner.kv_caches if isinstance(cache, torch.Tensor)]
