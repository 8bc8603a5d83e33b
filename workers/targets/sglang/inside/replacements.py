"""Names of SGLang that are replaced from outside, each with its reason; nothing else of it is touched."""

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from types import FunctionType
from typing import Any

import torch

from workers.simulated_torch.backend import DEVICE_NAME
from workers.simulated_torch.kernel_definitions import Definitions
from workers.simulated_torch.triton_tasks import remember_pointers
from workers.targets.child.inside.interpreter import interpreted
from workers.targets.child.inside.layers import LAYERS, ONE_KERNEL
from workers.targets.child.inside.replacements import Replacement
from workers.targets.sglang.inside import attention, verification
from workers.targets.sglang.inside.channels import unconnected
from workers.targets.sglang.limits import VOCABULARY_OF_VIEWS

_KERNELS = "sglang.kernels.ops"


class PrefixesRemembered:
    """Launches of a kernel that follows pointers to cached prefixes: it knows to which."""

    def __init__(self) -> None:
        self._prefixes: Sequence[torch.Tensor] = ()

    def written(self, before: Callable[..., Any]) -> Callable[..., Any]:
        """Return the caller of the kernel, which is given the prefixes."""
        signature = inspect.signature(before)

        @wraps(before)
        def write_cache_indices(*arguments: Any, **named: Any) -> None:
            self._prefixes = signature.bind(*arguments, **named).arguments["prefix_tensors"]
            before(*arguments, **named)

        return write_cache_indices

    def launched(self, before: Any) -> "PrefixesRemembered":
        """Return what takes the place of the kernel."""
        self._kernel = before
        return self

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(req_to_token: Any, indices: Any, pointers: torch.Tensor, *rest: Any) -> None:
            self._kernel[grid](req_to_token, indices, remember_pointers(pointers, self._prefixes), *rest)

        return launch


def _buffers_remembered(before: Callable[[Any], None]) -> Callable[[Any], None]:
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
        # Numbers are dealt out by rank where anybody in the batch asks for the likeliest alone, else by token.
        info.need_top_p_sampling = True
        return info

    return classmethod(from_schedule_batch)


def _true(before: Any) -> bool:
    return True


def _here_too(before: FunctionType) -> FunctionType:
    """Return a function that asks for one of some devices, among which this one is."""
    code = before.__code__
    named = [
        type(each)((*each, DEVICE_NAME)) if isinstance(each, tuple | frozenset) and "cuda" in each else each
        for each in code.co_consts
    ]
    return FunctionType(code.replace(co_consts=tuple(named)), before.__globals__)


def _apart(before: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @wraps(before)
    def _copy_logits_to_buffer(processor: Any, *arguments: Any, **named: Any) -> torch.Tensor:
        logits = before(processor, *arguments, **named)
        return logits if processor.vocab_size == VOCABULARY_OF_VIEWS else logits.contiguous()

    return _copy_logits_to_buffer


def _nothing(before: Any) -> Callable[..., None]:
    return lambda *arguments, **named: None


def _reconstructed(before: Any) -> Any:
    from sglang.kernels.ops.speculative import reconstruct_tree  # noqa: PLC0415

    return reconstruct_tree.reconstruct_indices_from_tree_mask_triton


def _as_on_xpu(before: FunctionType) -> FunctionType:
    """Return a function that takes its device for one on which kernels of trees are Triton's."""
    return FunctionType(before.__code__, {**before.__globals__, "_is_xpu": True}, argdefs=before.__defaults__)


_PREFIXES = PrefixesRemembered()
_SELECTED = "on an unknown device compiled kernels of a GPU would be called: this selects SGLang's own Triton ones"
_COMPILED = "it is compiled for GPUs alone"
_VERIFYING = (
    ("tree_speculative_sampling_target_only", verification.verifying),
    ("top_k_renorm_prob", verification.likeliest),
    ("top_p_renorm_prob", verification.nucleus),
)
# Since this release kernels of trees are chosen in one place, and None where they are not compiled.
_ONE_PLACE = "0.5.23"
REPLACEMENTS: tuple[Replacement, ...] = (
    Replacement(
        "sglang.srt.managers.scheduler_components.ipc_channels",
        "SchedulerIpcChannels.create",
        "its channels are sockets to processes of a server: what comes and goes is here beside it",
        unconnected,
    ),
    Replacement(
        f"{_KERNELS}.attention.decode_attention",
        "decode_attention_fwd",
        "its kernels take minutes in the interpreter: one task of the device attends, over the same slots",
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
        "a kernel follows pointers to cached prefixes: it knows what these point to from here on",
        _PREFIXES.written,
    ),
    Replacement(
        "sglang.srt.mem_cache.allocation",
        "write_req_to_token_pool_triton",
        "the same kernel, as it is launched",
        _PREFIXES.launched,
    ),
    Replacement(
        "sglang.srt.mem_cache.memory_pool",
        "MHATokenToKVPool._init_data_ptrs_and_strides",
        "kernels follow pointers in its tensors: they know what these point to from here on",
        _buffers_remembered,
    ),
    Replacement(
        "sglang.srt.sampling.sampling_batch_info",
        "SamplingBatchInfo.from_schedule_batch",
        "what is drawn would depend on who else is in a batch: seeds count, as in its deterministic mode, by rank",
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
    # Older ones ask for compiled kernels where they use them, of a package that is absent here.
    *(Replacement("sgl_kernel", name, _COMPILED, made, until=_ONE_PLACE) for name, made in _VERIFYING),
    # Before that there is no such kernel of Triton: a corpus is refused by the name of the one that is missing.
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
        "it asks tensors whether they are CUDA's: of the others memory would be given away while it is used",
        _recorded,
    ),
    Replacement(
        "sglang.srt.managers.overlap_utils",
        "_is_cuda",
        "lengths come to the host by a stream of their own and pinned memory on CUDA alone, which is tested here",
        _true,
    ),
    Replacement(
        "sglang.srt.arg_groups.speculative_hook",
        "_handle_ngram",
        "it refuses devices by name that do all it needs",
        _here_too,
    ),
    Replacement(
        "sglang.srt.constrained.xgrammar_backend",
        "XGrammarGrammar.apply_vocab_mask",
        "it refuses devices by name that do all it needs",
        _here_too,
    ),
    Replacement(
        "sglang.srt.layers.logits_processor",
        "LogitsProcessor._copy_logits_to_buffer",
        "weights are float32 here: logits of other weights are converted, which copies them; one size keeps the view",
        _apart,
    ),
    Replacement(
        "sglang.srt.layers.sampler",
        "Sampler._sync_token_ids_across_tp",
        "beside grammars ranks agree on tokens by a library that knows no such device: there is one rank",
        _nothing,
    ),
    # The last one: what is loaded with it has the names above as they are replaced.
    Replacement(
        "sglang.srt.managers.scheduler",
        "create_scheduler_watchdog",
        "a thread of it keeps each scheduler for good, and ends the process by a clock",
        _nothing,
    ),
)


def replacements(definitions: Definitions) -> list[Replacement]:
    """Return what is replaced: of Triton's interpreter, where some kernels have definitions, and of SGLang."""
    return [*interpreted(definitions), *REPLACEMENTS]
