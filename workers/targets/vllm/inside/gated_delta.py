"""Replacements in vLLM so that gated delta nets run on the simulated device.

vLLM's prefill kernels refuse float32, which the test models have: one device task replaces them all.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
import torch

from workers.simulated_torch.device import activate
from workers.simulated_torch.kernel_definitions import Array
from workers.targets.vllm.inside.kernels.delta_rule import advance_state


def allow_no_experts(before: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap `set_moe_parameters` so that a model without mixture-of-experts layers is valid."""

    @wraps(before)
    def set_moe_parameters(self: Any) -> None:
        if any(hasattr(layer.mlp, "experts") for layer in self.model.layers):
            before(self)

    return set_moe_parameters


def prefill_by_task(before: Callable[..., Any]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Replace the prefill kernels by one device task (rows with no state, or several tokens)."""

    @wraps(before)
    def chunk_gated_delta_rule(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        initial_state: torch.Tensor,
        cu_seqlens: torch.Tensor,
        chunk_indices: torch.Tensor,
        chunk_offsets: torch.Tensor,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, state = torch.empty_like(v), torch.empty_like(initial_state)
        # The last two map a GPU program to its chunk.
        reads = (q, k, v, g, beta, initial_state, cu_seqlens, chunk_indices, chunk_offsets)
        activate().enqueue("chunk_gated_delta_rule", _advance_rows, reads, (output, state))
        return output, state

    return chunk_gated_delta_rule


def _advance_rows(*tensors: torch.Tensor) -> None:
    queries, keys, values, gates, betas, before, starts, _, _, output, after = (each.numpy() for each in tensors)
    advance_rows(
        queries=queries[0],
        keys=keys[0],
        values=values[0],
        gates=gates[0],
        betas=betas[0],
        before=before,
        starts=starts,
        output=output[0],
        after=after,
    )


def advance_rows(
    *,
    queries: Array,
    keys: Array,
    values: Array,
    gates: Array,
    betas: Array,
    before: Array,
    starts: Array,
    output: Array,
    after: Array,
) -> None:
    """Advance each row's recurrent state by all its tokens, and write their outputs.

    Shapes: queries and keys [T, H, K] of length one, values and output [T, HV, V], gates and betas [T, HV], states
    before and after [rows, HV, V, K], starts [rows + 1].
    """
    share = values.shape[1] // queries.shape[1]
    queries = queries * np.float32(queries.shape[-1] ** -0.5)
    queries, keys = (each.repeat(share, axis=1) for each in (queries, keys))
    after[:] = before
    for row, state in enumerate(after):
        for token in range(starts[row], starts[row + 1]):
            output[token] = advance_state(state, queries[token], keys[token], values[token], gates[token], betas[token])


def exponential(before: Any) -> Callable[[Any], Any]:
    """Replace vLLM's `exp` by `triton.language.exp`, the name that the interpreter supports."""

    def exp(values: Any) -> Any:
        import triton.language  # noqa: PLC0415  Triton may be missing

        return triton.language.exp(values)

    return exp


def block_size_helpers(before: Any) -> SimpleNamespace:
    """Return `triton.cdiv` and `triton.next_power_of_2`, the latter without Triton."""
    return SimpleNamespace(cdiv=before.cdiv, next_power_of_2=lambda size: 1 << max(0, size - 1).bit_length())


_MAMBA = "vllm.model_executor.layers.mamba"
_OPS = "vllm.third_party.flash_linear_attention.ops"
_CONVOLUTIONS = f"{_MAMBA}.ops.causal_conv1d"
_DECODES, _DECODES_WITH_DRAFTS = f"{_OPS}.fused_recurrent", f"{_OPS}.fused_sigmoid_gating"
_PREFILLS = f"{_OPS}.fused_gdn_prefill_post_conv"
# A replacement in vLLM: module, name, reason, and function that makes it.
Replaced: TypeAlias = tuple[str, str, str, Callable[[Any], Any]]
IN_BOTH_RUNNERS: tuple[Replaced, ...] = (
    (
        "vllm.model_executor.models.qwen3_next",
        "QwenNextMixtureOfExperts.set_moe_parameters",
        "it refuses a model with dense layers only, though it supports single dense layers",
        allow_no_experts,
    ),
    (
        f"{_MAMBA}.gdn.qwen_gdn_linear_attn",
        "fla_chunk_gated_delta_rule",
        "its prefill kernels for GPUs refuse float32: a device task computes the same",
        prefill_by_task,
    ),
)
WITHOUT_TRITON: tuple[Replaced, ...] = tuple(
    (
        module,
        "triton",
        "Triton is missing, and only its block-size helpers are called",
        block_size_helpers,
    )
    for module in (_CONVOLUTIONS, _DECODES, _DECODES_WITH_DRAFTS, _PREFILLS)
)
INTERPRETED: tuple[Replaced, ...] = (
    (_DECODES, "exp", "the interpreter supports this Triton function only under its own name", exponential),
)
# Triton kernels without a CPU counterpart, and `constexpr` arguments that Triton computes from other arguments.
KERNELS = tuple(
    (module, name, "a Triton kernel of gated delta nets without CPU counterpart")
    for module, name in (
        (_CONVOLUTIONS, "_causal_conv1d_fwd_kernel"),
        (_CONVOLUTIONS, "_causal_conv1d_update_kernel"),
        (_DECODES, "fused_recurrent_gated_delta_rule_packed_decode_kernel"),
        (_DECODES_WITH_DRAFTS, "fused_sigmoid_gating_delta_rule_update_kernel"),
        (_PREFILLS, "_fused_post_conv_kernel"),
    )
)
DERIVED_CONSTEXPRS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "USE_INITIAL_STATE": lambda given: given["h0"] is not None,
    "IS_VARLEN": lambda given: given["cu_seqlens"] is not None,
    "IS_CONTINUOUS_BATCHING": lambda given: given["ssm_state_indices"] is not None,
    "IS_SPEC_DECODING": lambda given: given["num_accepted_tokens"] is not None,
}
