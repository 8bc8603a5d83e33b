"""Platform plugin that makes the simulated device a device of SGLang."""

from functools import partial
from typing import Any

import torch
from sglang.srt.platforms import interface
from sglang.srt.platforms.device_mixin import PlatformEnum

from workers.simulated_torch.backend import DEVICE_NAME

MEMORY_BYTES = 1 << 30


class SimulatedPlatform(interface.SRTPlatform):  # type: ignore[misc]
    """SGLang platform with streams, events, pinned memory and Triton kernels."""

    _enum = PlatformEnum.OOT
    device_name = DEVICE_NAME
    device_type = DEVICE_NAME
    # Releases before 0.5.22 assume that Triton is supported.
    if hasattr(interface, "PlatformCapabilities"):
        capabilities = interface.PlatformCapabilities(supports_triton=True)

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


class PlatformWithPools(SimulatedPlatform):
    """The platform for SGLang releases that ask it for KV-cache classes.

    It names SGLang's own classes.
    """

    def get_mha_kv_pool_cls(self) -> Any:
        from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool  # noqa: PLC0415

        # With draft trees, accepted KV-cache entries are moved; SGLang enables this only for its own platforms.
        return partial(MHATokenToKVPool, enable_kv_cache_copy=True)

    def get_paged_allocator_cls(self) -> Any:
        from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator  # noqa: PLC0415

        return PagedTokenToKVPoolAllocator


def activated() -> str:
    """Return the platform's qualified class name, as SGLang's entry point expects."""
    names_pools = hasattr(interface.SRTPlatform, "get_mha_kv_pool_cls")
    return f"{__name__}:{(PlatformWithPools if names_pools else SimulatedPlatform).__name__}"
