"""Attributes of vLLM that we replace, each with its reason; all other code is unmodified."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.kernel_definitions import Definitions
from workers.simulated_torch.triton_tasks import DefinedKernel, remember_pointers
from workers.targets.child.inside.interpreter import interpreter_replacements
from workers.targets.child.inside.layers import LAYERS, ONE_KERNEL
from workers.targets.child.inside.replacements import Replacement
from workers.targets.vllm.inside import gated_delta
from workers.targets.vllm.inside.cpu_build import (
    RewindableGenerator,
    expand_to_tokens,
    ignore_pinned_memory,
    keep_async_scheduling,
    once,
    reject_padding,
    rotate_flat_heads,
    save_generator_states,
    skip_without_rows,
)
from workers.targets.vllm.inside.graphs import GRAPH_REPLACEMENT
from workers.targets.vllm.inside.hybrid import (
    BlockZeroingKernel,
    StateCopyKernel,
    copy_hit_blocks,
    decode_convolution,
    prefill_convolution,
    remember_state_tables,
    remember_zeroed_caches,
)
from workers.targets.vllm.inside.ranks.broadcasts import reading_rows_as_they_are
from workers.targets.vllm.inside.transfer.pool import (
    SIMPLE_OFFLOADING_REPLACEMENTS,
    TorchWithEvents,
    allow_any_device,
    copy_by_tasks,
    set_pool_chunks,
)
from workers.targets.vllm.names import RunnerName


@dataclass(frozen=True, slots=True)
class RunnerReplacement(Replacement):
    """Replacement of an attribute of vLLM on some devices, for some model runners."""

    devices: tuple[str, ...] = ("cpu",)
    runners: tuple[RunnerName, ...] = ("v1",)


def _remembering_pointers(before: Any) -> Any:
    @wraps(before)
    def make_ptr_tensor(self: Any, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        tensors = list(tensors)
        return remember_pointers(before(self, tensors), tensors)

    return make_ptr_tensor


def cuda_library_functions(before: Any) -> SimpleNamespace:
    """Return a stand-in for CUDA's device library: `log1p` computed by Triton's `log`."""
    from vllm.triton_utils import tl  # noqa: PLC0415  interpreted if configured before

    return SimpleNamespace(log1p=lambda x: tl.log(1.0 + x))


def _in_this_process(before: Any) -> Any:
    return lambda look: look()


_STATES = StateCopyKernel()
REPLACEMENTS: tuple[RunnerReplacement, ...] = (
    RunnerReplacement(
        "vllm.model_executor.models.registry",
        "_run_in_subprocess",
        "it inspects a model class in a subprocess, which lacks our overlay",
        _in_this_process,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.platforms.cpu",
        "CpuPlatform.check_and_update_config",
        "asynchronous scheduling is silently switched off on a CPU",
        keep_async_scheduling,
    ),
    RunnerReplacement(
        "vllm.platforms.cpu",
        "CpuPlatform.register_triton_kernel_overrides",
        "it wraps its own wrappers for a second engine, and fails after numba was loaded: it runs once",
        once,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
        since="0.31.0",
    ),
    RunnerReplacement(
        "torch",
        "zeros",
        "ngram_gpu needs pinned memory, which a CPU build does not have",
        ignore_pinned_memory,
    ),
    RunnerReplacement(
        "vllm.v1.sample.rejection_sampler",
        "expand_batch_to_tokens",
        "its CPU kernel does not write temperature, top-k and top-p of sampled rows (vllm#55005)",
        expand_to_tokens,
        devices=("cpu", "sim"),
    ),
    RunnerReplacement(
        "vllm.utils.cpu_triton_utils",
        "_rejection_random_sample_kernel_impl",
        "its CPU kernel may accept a padding draft token: findings/padded_drafts",
        reject_padding,
        devices=("cpu", "sim"),
    ),
    RunnerReplacement(
        "torch",
        "Generator",
        "a seeded request with a chunked prefill crashes the engine on a CPU: findings/seeded_chunks",
        lambda before: RewindableGenerator,
    ),
    RunnerReplacement(
        "vllm.v1.sample.ops.topk_topp_sampler",
        "TopKTopPSampler.forward_cpu",
        "the same: each generator saves its state before it samples",
        save_generator_states,
    ),
    RunnerReplacement(
        "vllm.v1.sample.ops.topk_topp_sampler",
        "apply_top_k_only",
        "a step without top-k rows crashes the engine on a CPU: findings/top_k_of_none",
        skip_without_rows,
    ),
    RunnerReplacement(
        "vllm.model_executor.layers.rotary_embedding.base",
        "RotaryEmbedding.forward_cpu",
        "its CPU kernel mistakes heads for tokens if heads have a dimension: findings/heads_for_tokens",
        rotate_flat_heads,
    ),
    RunnerReplacement(
        "vllm.model_executor.parameter",
        "BasevLLMParameter.__torch_function__",
        "vLLM's Python override has the same result as PyTorch's own method, which is faster",
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
            "its GPU kernels need Triton: device tasks run the CPU kernels instead",
            made,
            devices=("sim",),
        )
        for name, made in (("causal_conv1d_fn", prefill_convolution), ("causal_conv1d_update", decode_convolution))
    ),
    *(
        RunnerReplacement(*each, devices=("sim",), runners=("v1", "v2"), since="0.32.0")
        for each in (*gated_delta.IN_BOTH_RUNNERS, *SIMPLE_OFFLOADING_REPLACEMENTS, GRAPH_REPLACEMENT)
    ),
    *(RunnerReplacement(*each, devices=("sim",), since="0.32.0") for each in gated_delta.WITHOUT_TRITON),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "KVBlockZeroer.__init__",
        "a kernel follows pointers in its table: the table keeps the tensors that it points to",
        remember_zeroed_caches,
        devices=("sim",),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "_zero_kv_blocks_kernel",
        "a Triton kernel without CPU counterpart: it zeroes a hybrid model's new blocks, which may hold old states",
        BlockZeroingKernel,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.utils",
        "copy_kv_cache_blocks_inplace",
        "only its device tensors name the copied blocks, so it would access blocks of transfers in flight",
        copy_hit_blocks,
        devices=("sim",),
        runners=("v1", "v2"),
        since="0.32.0",
    ),
    RunnerReplacement(
        "vllm.v1.worker.mamba_utils",
        "preprocess_mamba",
        "a kernel that copies recurrent states follows pointers: their caches are kept",
        _STATES.prepared,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.utils.cpu_triton_utils",
        "_batch_memcpy_impl",
        "its CPU counterpart copies at once: here a launch is a device task",
        _STATES.launched,
        devices=("sim",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.mamba_utils",
        "MambaSpecDecodeGPUContext._populate_metadata",
        "kernels that copy recurrent states follow pointers in its tensors: these keep what they point to",
        remember_state_tables,
        devices=("sim",),
        runners=("v1", "v2"),
        since="0.32.0",
    ),
    RunnerReplacement(
        "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector",
        "build_offloading_config",
        "its pool size is set in bytes, and here in chunks, whose size in bytes only vLLM knows",
        set_pool_chunks,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.spec",
        "CPUOffloadingSpec.get_worker",
        "it refuses devices other than CUDA and similar ones",
        allow_any_device,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.gpu_worker",
        "SingleDirectionOffloadingHandler.__init__",
        "it asserts CUDA caches, and copies by addresses with CUDA or Triton: here by device tasks",
        copy_by_tasks,
        devices=("cpu", "sim"),
        runners=("v1", "v2"),
    ),
    RunnerReplacement(
        "vllm.v1.kv_offload.cpu.gpu_worker",
        "torch",
        "it records accelerator events, which a CPU build does not have",
        lambda before: TorchWithEvents(),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.buffer_utils",
        "get_accelerator_view_from_cpu_tensor",
        "only CUDA and similar devices have views of pinned memory (UVA)",
        lambda before: activate().device_view,
        devices=("sim",),
        runners=("v2",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.block_table",
        "BlockTables._make_ptr_tensor",
        "kernels follow pointers in its tensors: these keep what they point to",
        _remembering_pointers,
        devices=("sim",),
        runners=("v2",),
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.pp_utils",
        "PPHandler.broadcast_drafts",
        "it reads rows that later steps may write, and whose receiver drops them",
        reading_rows_as_they_are,
        devices=("sim",),
        runners=("v2",),
        # Version 0.33.0 sends the draft tokens of a step without their rows.
        until="0.33.0",
    ),
    RunnerReplacement(
        "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils",
        "tldevice",
        "a CUDA library logarithm that the interpreter lacks: a step with sampled draft tokens would crash",
        cuda_library_functions,
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
    """Return replacements for the first runner's Triton kernels without a CPU counterpart."""
    copies, why = "vllm.v1.worker.mamba_utils", "a Triton kernel without CPU counterpart that copies recurrent states"
    kernels = (
        (copies, "precopy_mamba_align_fused_kernel", why),
        (copies, "postprocess_mamba_fused_kernel", why),
        *gated_delta.KERNELS,
    )
    made = partial(DefinedKernel, definitions, gated_delta.DERIVED_CONSTEXPRS)
    return [
        Replacement(module, name, f"{reason}: its definition runs as a task", made, since="0.32.0")
        for module, name, reason in kernels
    ]


def replacements_on(device: str, runner: RunnerName, definitions: Definitions) -> list[Replacement]:
    """Return all replacements on a device for a model runner, those of Triton kernels first."""
    of_kernels: Sequence[Replacement] = ()
    if device == "sim":
        of_kernels = interpreter_replacements(definitions) if runner == "v2" else _without_triton(definitions)
    return [*of_kernels, *(each for each in REPLACEMENTS if device in each.devices and runner in each.runners)]
