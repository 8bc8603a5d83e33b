"""Platform of the simulated device, as SGLang takes platforms from outside."""

from typing import Any

import torch
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities, SRTPlatform

from workers.targets.simulated_torch.backend import DEVICE_NAME

MEMORY_BYTES = 1 << 30


class SimulatedPlatform(SRTPlatform):  # type: ignore[misc]
    """A device with streams, events and pinned memory, on which kernels of Triton run."""

    _enum = PlatformEnum.OOT
    device_name = DEVICE_NAME
    device_type = DEVICE_NAME
    capabilities = PlatformCapabilities(supports_triton=True)

    def get_device_total_memory(self, device_id: int = 0) -> int:
        return MEMORY_BYTES

    def get_current_memory_usage(self, *of: Any) -> float:
        return 0.0

    def is_pin_memory_available(self, *of: Any) -> bool:
        return True

    def get_default_attention_backend(self) -> str:
        return "triton"

    def supports_speculative_algorithm(self, algorithm: str) -> bool:
        return True

    def supports_speculative_draft_attention_backend(self, algorithm: str, backend: str) -> bool:
        return True

    def get_group_coordinator_device(self, local_rank: int) -> torch.device:
        return torch.device(DEVICE_NAME, 0)

    def get_compile_backend(self, mode: str | None = None) -> str:
        return "eager"


def activated() -> str:
    """Return the class of the platform, as SGLang asks an entry point for it."""
    return f"{__name__}:{SimulatedPlatform.__name__}"
