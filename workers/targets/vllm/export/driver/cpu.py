"""Patches of PyTorch and of vLLM's platform, for engines on a plain CPU."""

from typing import Any

import pytest
import torch
from vllm.config import VllmConfig
from vllm.platforms.cpu import CpuPlatform


def without_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore that a drafter wants pinned memory: PyTorch for CPUs has none."""
    zeros = torch.zeros

    def unpinned(*size: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return zeros(*size, **options)

    monkeypatch.setattr(torch, "zeros", unpinned)


def leave_asynchrony(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep asynchronous scheduling, which the platform of CPUs switches off."""
    update = CpuPlatform.check_and_update_config

    def update_the_rest(vllm_config: VllmConfig) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        update(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked

    replaced = staticmethod(update_the_rest)
    monkeypatch.setattr(CpuPlatform, "check_and_update_config", replaced)
