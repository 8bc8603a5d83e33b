"""Names of vLLM that are replaced from outside, each with its reason; nothing else of it is touched."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.kernel_definitions import Definitions
from workers.simulated_torch.triton_tasks import DefinedKernel, remember_pointers
from workers.targets.child.inside.interpreter import interpreted
from workers.targets.child.inside.layers import LAYERS, ONE_KERNEL
from workers.targets.child.inside.replacements import Replacement
from workers.targets.vllm.inside import gated_delta
from workers.targets.vllm.inside.cpu_build import (
    RewindableGenerator,
    expanded,
    keeping_asynchrony,
    of_some,
    once,
    rejecting_padding,
    remembering,
    rotating_all_heads,
    unpinned,
)
from workers.targets.vllm.inside.graphs import OF_GRAPHS
from workers.targets.vllm.inside.hybrid import (
    BlocksZeroed,
    StatesCopied,
    blocks_copied,
    caches_remembered,
    prompts_convolved,
    states_remembered,
    tokens_convolved,
)
from workers.targets.vllm.inside.transfer.pool import (
    OF_SIMPLE_OFFLOADING,
    TorchWithEvents,
    copying_by_tasks,
    sized_by_chunks,
    worker_of_any_device,
)
from workers.targets.vllm.names import RunnerName


@dataclass(frozen=True, slots=True)
class RunnerReplacement(Replacement):
    """A name that is replaced on some devices, for some model runners."""

    devices: tuple[str, ...] = ("cpu",)
    runners: tuple[RunnerName, ...] = ("v1",)


def _remembering_pointers(before: Any) -> Any:
    @wraps(before)
    def make_ptr_tensor(self: Any, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        tensors = list(tensors)
        return remember_pointers(before(self, tensors), tensors)

    return make_ptr_tensor


def library_of_cuda(before: Any) -> SimpleNamespace:
    """Return what kernels call of CUDA's library, by what the interpreter has."""
    from vllm.triton_utils import tl  # noqa: PLC0415  it is interpreted if that was asked for before

    return SimpleNamespace(log1p=lambda x: tl.log(1.0 + x))


def _here(before: Any) -> Any:
    return lambda look: look()


_STATES = StatesCopied()
REPLACEMENTS: tuple[RunnerReplacement, ...] = (
    RunnerReplacement(
        "vllm.model_executor.models.registry",
        "_run_in_subprocess",
        "the process that it starts to inspect a model's class has no sources laid over; here is no CUDA to keep away",
        _here,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.platforms.cpu",
        "CpuPlatform.check_and_update_config",
        "asynchronous scheduling is silently switched off on a CPU",
        keeping_asynchrony,
    ),
    RunnerReplacement(
        "vllm.platforms.cpu",
        "CpuPlatform.register_triton_kernel_overrides",
        "it fails for the second engine of a process once numba is loaded, and wraps its own wrappers: once is enough",
        once,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
        since="0.31.0",
    ),
    RunnerReplacement(
        "torch",
        "zeros",
        "ngram_gpu asks for pinned memory, of which a CPU build has none",
        unpinned,
    ),
    RunnerReplacement(
        "vllm.v1.sample.rejection_sampler",
        "expand_batch_to_tokens",
        "its kernel for CPUs leaves temperature, top-k and top-p unwritten where tokens are drawn (vllm#55005)",
        expanded,
        devices=("cpu", "sim"),
    ),
    RunnerReplacement(
        "vllm.utils.cpu_triton_utils",
        "_rejection_random_sample_kernel_impl",
        "its kernel for CPUs may accept a draft that only fills up a row: findings/padded_drafts",
        rejecting_padding,
        devices=("cpu", "sim"),
    ),
    RunnerReplacement(
        "torch",
        "Generator",
        "a seeded request whose prompt comes in chunks ends the engine on a CPU: findings/seeded_chunks",
        lambda before: RewindableGenerator,
    ),
    RunnerReplacement(
        "vllm.v1.sample.ops.topk_topp_sampler",
        "TopKTopPSampler.forward_cpu",
        "the same: what is taken back is kept before each draw",
        remembering,
    ),
    RunnerReplacement(
        "vllm.v1.sample.ops.topk_topp_sampler",
        "apply_top_k_only",
        "a step without drafts ends the engine on a CPU, if tokens are drawn by top-k: findings/top_k_of_none",
        of_some,
    ),
    RunnerReplacement(
        "vllm.model_executor.layers.rotary_embedding.base",
        "RotaryEmbedding.forward_cpu",
        "its kernel for CPUs takes heads for tokens where these have two dimensions: findings/heads_for_tokens",
        rotating_all_heads,
    ),
    RunnerReplacement(
        "vllm.model_executor.parameter",
        "BasevLLMParameter.__torch_function__",
        "operators on a weight go through Python, to do what PyTorch does of any parameter: that is called at once",
        lambda before: torch.nn.Parameter.__torch_function__,
        devices=("sim",),
        runners=("v1", "v2"),
    ),
    *(
        RunnerReplacement(
            f"vllm.model_executor.layers.{module}",
            f"{name}.forward_native",
            ONE_KERNEL,
            made,
            devices=("sim",),
            runners=("v1", "v2"),
        )
        for module, name, made in LAYERS
    ),
    *(
        RunnerReplacement(
            "vllm.model_executor.layers.mamba.short_conv",
            name,
            "a hybrid model's kernels for a GPU are Triton's: those for a CPU are tasks of the device in their place",
            made,
            devices=("sim",),
        )
        for name, made in (("causal_conv1d_fn", prompts_convolved), ("causal_conv1d_update", tokens_convolved))
    ),
    *(
        RunnerReplacement(*each, devices=("sim",), runners=("v1", "v2"), since="0.32.0")
        for each in (*gated_delta.IN_BOTH_RUNNERS, *OF_SIMPLE_OFFLOADING, OF_GRAPHS)
    ),
    *(RunnerReplacement(*each, devices=("sim",), since="0.32.0") for each in gated_delta.WITHOUT_TRITON),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "KVBlockZeroer.__init__",
        "a kernel follows pointers in its table: it knows what these point to from here on",
        caches_remembered,
        devices=("sim",),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "_zero_kv_blocks_kernel",
        "a kernel of Triton's alone: a hybrid model's new blocks are zeroed, as states may have been in them",
        BlocksZeroed,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "copy_kv_cache_blocks_inplace",
        "it tells the device alone which blocks it copies, so that it would use all beside those in a transfer",
        blocks_copied,
        devices=("sim",),
        runners=("v1", "v2"),
        since="0.32.0",
    ),
    RunnerReplacement(
        "vllm.v1.worker.mamba_utils",
        "preprocess_mamba",
        "a kernel that copies states follows pointers into caches: it knows which from here on",
        _STATES.prepared,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.utils.cpu_triton_utils",
        "_batch_memcpy_impl",
        "what takes its place on a CPU copies at once: a launch is a task of the device",
        _STATES.launched,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.mamba_utils",
        "MambaSpecDecodeGPUContext._populate_metadata",
        "kernels that copy states follow pointers in its tensors: they know what these point to from here on",
        states_remembered,
        devices=("sim",),
        runners=("v1", "v2"),
        since="0.32.0",
    ),
    RunnerReplacement(
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
        "build_offloading_config",
        "its pool is asked for in bytes, and here in chunks: how many bytes these take it knows alone",
        sized_by_chunks,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.spec",
        "CPUOffloadingSpec.get_worker",
        "it refuses devices other than CUDA's and their like",
        worker_of_any_device,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.gpu_worker",
        "SingleDirectionOffloadingHandler.__init__",
        "it asserts that caches are CUDA's, and its copies are CUDA's or Triton's by addresses: here its device's",
        copying_by_tasks,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.gpu_worker",
        "torch",
        "its events are those of an accelerator, of which a CPU build has none",
        lambda before: TorchWithEvents(),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.buffer_utils",
        "get_accelerator_view_from_cpu_tensor",
        "only CUDA's devices and their like have views of pinned memory (UVA)",
        lambda before: activate().device_view,
        devices=("sim",),
        runners=("v2",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.block_table",
        "BlockTables._make_ptr_tensor",
        "kernels follow pointers in its tensors: they know what these point to from here on",
        _remembering_pointers,
        devices=("sim",),
        runners=("v2",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils",
        "tldevice",
        "a logarithm of CUDA's library, which the interpreter has not: a step with drawn drafts would end the engine",
        library_of_cuda,
        devices=("sim",),
        runners=("v2",),
    ),
    *(RunnerReplacement(*each, devices=("sim",), runners=("v2",), since="0.32.0") for each in gated_delta.INTERPRETED),
    RunnerReplacement(
        "vllm.v1.sample.ops.topk_topp_sampler",
        "HAS_TRITON",
        "its kernel for top-k and top-p does not run in the interpreter ('int' object has no attribute 'to')",
        lambda before: False,
        devices=("sim",),
        runners=("v2",),
    ),
)


def _without_triton(definitions: Definitions) -> list[Replacement]:
    """Return what is replaced of kernels of the first runner that have no counterpart for a CPU."""
    copies, why = "vllm.v1.worker.mamba_utils", "a kernel of Triton's alone, which copies states"
    kernels = (
        (copies, "precopy_mamba_align_fused_kernel", why),
        (copies, "postprocess_mamba_fused_kernel", why),
        *gated_delta.KERNELS,
    )
    made = partial(DefinedKernel, definitions, gated_delta.FOUND_BY_TRITON)
    return [
        Replacement(module, name, f"{reason}: its definition runs as a task", made, since="0.32.0")
        for module, name, reason in kernels
    ]


def replacements_on(device: str, runner: RunnerName, definitions: Definitions) -> list[Replacement]:
    """Return what is replaced on a device for a model runner, of whose kernels some have definitions."""
    of_kernels: Sequence[Replacement] = ()
    if device == "sim":
        of_kernels = interpreted(definitions) if runner == "v2" else _without_triton(definitions)
    return [*of_kernels, *(each for each in REPLACEMENTS if device in each.devices and runner in each.runners)]
