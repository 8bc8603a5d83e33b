"""vLLM platform of the simulated device; importing it imports nothing else of vLLM."""

from typing import Any

import torch
import vllm.platforms
from vllm.platforms.cpu import CpuPlatform
from vllm.platforms.interface import PlatformEnum

from workers.targets.child.inside.simulated_device import SimulatedDevice

DEVICE = torch.device("sim", 0)
# An operator of GPU builds only, with which CUDA graphs release their outputs.
_WEAK_VIEWS: Any = torch.library.Library("_C", "FRAGMENT")  # type: ignore[no-untyped-call]
# CPU kernels that vLLM registers for every device.
_KERNELS = (
    "compute_slot_mapping_kernel_impl",
    "copy_and_expand_eagle_inputs_kernel_impl",
    "eagle_prepare_inputs_padded_kernel_impl",
    "eagle_prepare_next_token_padded_kernel_impl",
    "eagle_step_slot_mapping_metadata_kernel_impl",
    "expand_kernel_impl",
    "rejection_greedy_sample_kernel_impl",
    "rejection_random_sample_kernel_impl",
    "sample_recovered_tokens_kernel_impl",
)
# Kernels that only newer releases have.
_NEWER_KERNELS = ("copy_and_expand_dflash_inputs_kernel_impl",)


class SimulatedPlatform(CpuPlatform):  # type: ignore[misc]
    """vLLM platform with streams, events and pinned memory, and with vLLM's CPU kernels."""

    _enum = PlatformEnum.OOT
    device_name = "sim"
    device_type = "sim"
    dispatch_key = "PrivateUse1"
    current_stream = staticmethod(torch.accelerator.current_stream)

    @classmethod
    def get_attn_backend_cls(cls, *arguments: Any, **options: Any) -> str:
        return "workers.targets.vllm.inside.lanes.Attention"

    @classmethod
    def set_device(cls, device: torch.device) -> None:
        """Do nothing: a process has one simulated device only."""

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """Select our worker class, and keep `async_scheduling` as configured."""
        vllm_config.parallel_config.worker_cls = "workers.targets.vllm.inside.lanes.SimulatedWorker"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        return "workers.targets.vllm.inside.ranks.communicator.Communicator"

    @classmethod
    def is_pin_memory_available(cls) -> bool:
        return True

    @classmethod
    def support_static_graph_mode(cls) -> bool:
        return True

    @classmethod
    def get_static_graph_wrapper_cls(cls) -> str:
        return "vllm.compilation.cuda_graph.CUDAGraphWrapper"


def install(device: SimulatedDevice) -> None:
    """Make the simulated device vLLM's platform, before other modules of vLLM are loaded."""
    platforms: Any = vllm.platforms
    platforms._current_platform = SimulatedPlatform()
    SimulatedPlatform.import_kernels()
    newer = [name for name in _NEWER_KERNELS if hasattr(torch.ops._C, name)]
    device.queue_ops("_C", (*_KERNELS, *newer))
    _WEAK_VIEWS.define("weak_ref_tensor(Tensor input) -> Tensor")
    _WEAK_VIEWS.impl("weak_ref_tensor", device.weak_view, "PrivateUse1")
