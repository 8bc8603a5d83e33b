"""Attributes of SGLang that we replace, each with its reason; the rest stays unmodified."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

import torch

from workers.simulated_torch.backend import DEVICE_NAME
from workers.simulated_torch.kernel_definitions import Definitions
from workers.simulated_torch.triton_tasks import remember_pointers
from workers.targets.child.inside.interpreter import interpreter_replacements
from workers.targets.child.inside.layers import LAYERS, ONE_KERNEL
from workers.targets.child.inside.replacements import Replacement
from workers.targets.sglang.inside import attention, verification
from workers.targets.sglang.inside.channels import in_process_channels
from workers.targets.sglang.limits import VOCABULARY_WITH_VIEW

_KERNELS = "sglang.kernels.ops"


class PrefixKernel:
    """Wrapper of the kernel that follows pointers to cached prefixes; it knows their tensors."""

    def __init__(self) -> None:
        self._prefixes: Sequence[torch.Tensor] = ()

    def written(self, before: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the function that launches the kernel to store the prefix tensors."""
        signature = inspect.signature(before)

        @wraps(before)
        def write_cache_indices(*arguments: Any, **named: Any) -> None:
            self._prefixes = signature.bind(*arguments, **named).arguments["prefix_tensors"]
            before(*arguments, **named)

        return write_cache_indices

    def launched(self, before: Any) -> "PrefixKernel":
        """Wrap the kernel: each launch gets the tensors that its pointers refer to."""
        self._kernel = before
        return self

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(req_to_token: Any, indices: Any, pointers: torch.Tensor, *rest: Any) -> None:
            self._kernel[grid](req_to_token, indices, remember_pointers(pointers, self._prefixes), *rest)

        return launch


def _record_kv_buffers(before: Callable[[Any], None]) -> Callable[[Any], None]:
    @wraps(before)
    def _init_data_ptrs_and_strides(self: Any) -> None:
        before(self)
        remember_pointers(self.k_data_ptrs, self.k_buffer)
        remember_pointers(self.v_data_ptrs, self.v_buffer)
        remember_pointers(self.data_ptrs, self._slot_move_pointer_buffers())

    return _init_data_ptrs_and_strides


def _recorded(before: Any) -> Callable[..., None]:
    @wraps(before)
    def record_stream_each(tensors: Sequence[Any], stream: torch.Stream) -> None:
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == DEVICE_NAME:
                tensor.record_stream(stream)

    return record_stream_each


def _seeded(before: Any) -> Any:
    def from_schedule_batch(cls: Any, batch: Any, vocab_size: int) -> Any:
        info = before.__func__(cls, batch, vocab_size)
        if info.sampling_seed is None:
            seeds = [request.sampling_params.sampling_seed or 0 for request in batch.reqs]
            pinned = torch.tensor(seeds, dtype=torch.int64, pin_memory=True)
            info.sampling_seed = pinned.to(batch.device, non_blocking=True)
        # Forces one code path of the sampler: otherwise random numbers belong to tokens by rank if any batch row uses
        # top-p or top-k, else by token id.
        info.need_top_p_sampling = True
        return info

    return classmethod(from_schedule_batch)


def _true(before: Any) -> bool:
    return True


def _with_simulated_device(before: FunctionType) -> FunctionType:
    """Return the function with the simulated device in each device list that has "cuda"."""
    code = before.__code__
    named = [
        type(each)((*each, DEVICE_NAME)) if isinstance(each, tuple | frozenset) and "cuda" in each else each
        for each in code.co_consts
    ]
    return FunctionType(code.replace(co_consts=tuple(named)), before.__globals__)


def _contiguous(before: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(before)
    def _copy_logits_to_buffer(processor: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        logits = before(processor, *arguments, **named)
        return logits if processor.vocab_size == VOCABULARY_WITH_VIEW else logits.contiguous()

    return _copy_logits_to_buffer


def _nothing(before: Any) -> Callable[..., None]:
    return lambda *arguments, **named: None


def _with_several_ranks(before: Callable[..., None]) -> Callable[..., None]:
    """Return the function, which does nothing in an engine with one rank."""

    @wraps(before)
    def called(sampler: Any, *arguments: Any) -> None:
        if sampler.tp_sync_group is not None and sampler.tp_sync_group.size() > 1:
            before(sampler, *arguments)

    return called


def _reconstructed(before: Any) -> Any:
    from sglang.kernels.ops.speculative import reconstruct_tree  # noqa: PLC0415

    return reconstruct_tree.reconstruct_indices_from_tree_mask_triton


def _as_on_xpu(before: FunctionType) -> FunctionType:
    """Return the function as it is on an XPU, where Triton kernels build draft trees."""
    return FunctionType(before.__code__, {**before.__globals__, "_is_xpu": True}, argdefs=before.__defaults__)


_PREFIXES = PrefixKernel()
_SELECTED = "on an unknown device SGLang would call compiled GPU kernels: this selects its Triton kernels"
_COMPILED = "it is compiled for GPUs only"
_VERIFYING = (
    ("tree_speculative_sampling_target_only", verification.tree_verification),
    ("top_k_renorm_prob", verification.top_k_filter),
    ("top_p_renorm_prob", verification.top_p_filter),
)
# Since this release, one module selects the kernels for draft trees; without compiled ones it selects None.
_ONE_PLACE = "0.5.23"
REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "sglang.srt.managers.scheduler_components.ipc_channels",
        "SchedulerIpcChannels.create",
        "its channels are sockets to other processes of a server; here both ends are in this process",
        in_process_channels,
    ),
    Replacement(
        f"{_KERNELS}.attention.decode_attention",
        "decode_attention_fwd",
        "interpreting its kernels takes minutes: one device task computes the attention over the same slots",
        attention.decoding,
    ),
    Replacement(
        f"{_KERNELS}.attention.extend_attention",
        "extend_attention_fwd",
        "the same",
        attention.extending,
    ),
    *(
        Replacement(f"sglang.srt.layers.{module}", f"{name}.forward_native", ONE_KERNEL, made)
        for module, name, made in LAYERS
    ),
    Replacement(
        "sglang.srt.mem_cache.allocation",
        "write_cache_indices",
        "a kernel follows pointers to cached prefixes: this records the tensors that they refer to",
        _PREFIXES.written,
    ),
    Replacement(
        "sglang.srt.mem_cache.allocation",
        "write_req_to_token_pool_triton",
        "the same kernel at its launch",
        _PREFIXES.launched,
    ),
    Replacement(
        "sglang.srt.mem_cache.memory_pool",
        "MHATokenToKVPool._init_data_ptrs_and_strides",
        "kernels follow pointers in its tensors: this records the KV-cache tensors that they refer to",
        _record_kv_buffers,
    ),
    Replacement(
        "sglang.srt.sampling.sampling_batch_info",
        "SamplingBatchInfo.from_schedule_batch",
        "sampled tokens would depend on the other batch rows: seeds apply, as in its deterministic mode, by rank",
        _seeded,
    ),
    Replacement(f"{_KERNELS}.speculative.cache_locs", "_is_xpu", _SELECTED, _true),
    *(
        Replacement(f"{_KERNELS}.speculative.{module}", "_is_xpu", _SELECTED, _true, since=_ONE_PLACE)
        for module in ("spec_tree", "reconstruct_tree")
    ),
    *(
        Replacement("sglang.srt.speculative.eagle_utils", name, _COMPILED, made, since=_ONE_PLACE)
        for name, made in _VERIFYING
    ),
    # Older releases import compiled kernels where they use them, from a package that is not installed here.
    *(Replacement("sgl_kernel", name, _COMPILED, made, until=_ONE_PLACE) for name, made in _VERIFYING),
    # Releases before 0.5.21 have no Triton kernel for this: the n-gram corpus is refused with the missing name.
    Replacement(
        "sgl_kernel.speculative",
        "reconstruct_indices_from_tree_mask",
        _SELECTED,
        _reconstructed,
        since="0.5.21",
        until=_ONE_PLACE,
    ),
    *(
        Replacement("sglang.srt.speculative.eagle_utils", name, _SELECTED, _as_on_xpu, until=_ONE_PLACE)
        for name in ("build_tree_kernel_efficient", "verify_tree_greedy_func")
    ),
    Replacement(
        "sglang.srt.speculative.spec_utils",
        "record_stream_each",
        "it handles only CUDA tensors: memory of other tensors could be reused while a stream reads it",
        _recorded,
    ),
    Replacement(
        "sglang.srt.managers.overlap_utils",
        "_is_cuda",
        "only on CUDA are sequence lengths copied to the host by a separate stream, which is to be tested",
        _true,
    ),
    Replacement(
        "sglang.srt.arg_groups.speculative_hook",
        "_handle_ngram",
        "it refuses unknown devices by name",
        _with_simulated_device,
    ),
    Replacement(
        "sglang.srt.constrained.xgrammar_backend",
        "XGrammarGrammar.apply_vocab_mask",
        "it refuses unknown devices by name",
        _with_simulated_device,
    ),
    Replacement(
        "sglang.srt.layers.logits_processor",
        "LogitsProcessor._copy_logits_to_buffer",
        "float32 weights: other weights would convert, and so copy, the logits; one vocabulary size keeps the view",
        _contiguous,
    ),
    Replacement(
        "sglang.srt.layers.sampler",
        "Sampler._sync_token_ids_across_tp",
        "with grammars, ranks synchronise tokens by a library without support for this device, also if there is one",
        _with_several_ranks,
    ),
    # This one must be last: it imports modules that use the attributes above, which must be replaced by then.
    Replacement(
        "sglang.srt.managers.scheduler",
        "create_scheduler_watchdog",
        "its thread keeps each scheduler alive, and ends the process after a timeout",
        _nothing,
    ),
)


def replacements(definitions: Definitions) -> list[Replacement]:
    """Return all replacements, in Triton's interpreter and in SGLang."""
    return [*interpreter_replacements(definitions), *REPLACEMENTS]
