"""Patches for a CPU: no pinned memory, and asynchronous scheduling kept."""

from typing import Any

import pytest
import torch
from vllm.config import VllmConfig
from vllm.platforms.cpu import CpuPlatform


def ignore_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch `torch.zeros` to ignore `pin_memory=True`, which needs an accelerator."""
    zeros = torch.zeros

    def unpinned(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return zeros(*size, **options)

    monkeypatch.setattr(torch, "zeros", unpinned)


def keep_async_scheduling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch vLLM's CPU platform to keep asynchronous scheduling on."""
    update = CpuPlatform.check_and_update_config

    def update_other_settings(vllm_config: VllmConfig) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        update(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    replaced = staticmethod(update_other_settings)
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", replaced)
