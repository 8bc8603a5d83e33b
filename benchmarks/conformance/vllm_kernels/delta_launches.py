"""Launches of vLLM's gated-delta-net kernels.

The prefill kernels are compared with the one function that replaces them on the simulated device.
"""

from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import torch

from benchmarks.conformance.vllm_kernels.batches import Array, Batch
from benchmarks.conformance.vllm_kernels.launches import Launch, num_blocks_of, power_of_2
from workers.targets.vllm.inside.gated_delta import advance_rows, exponential

_OPS = "vllm.third_party.flash_linear_attention.ops"
PROMPTS = f"{_OPS}.chunk.chunk_gated_delta_rule_fwd"
# Allowed difference between chunk-wise and token-wise computation, at values of about 1.
_TOLERANCE = 2e-6
# Tokens per prefill chunk.
_CHUNK = 64
_TOKENS_BLOCK = 16


def of_delta_nets(b: Batch) -> Iterator[Launch]:
    """Yield launches of the gated-delta-net kernels: decode rows, draft rows, convolutions."""
    sizes, rows = b.sizes, b.sizes.rows
    heads, values, size = 1 + b.seed % 2, 2 + 2 * (b.seed % 2), 16
    count, width = b.num_tokens, 2 * heads * size + values * size
    blocks = 3 * rows + 2
    gates = {"A_log": _drawn(b, values), "dt_bias": _drawn(b, values)}
    shapes = {"H": heads, "HV": values, "K": size, "V": size, "BK": size, "BV": size}
    states = _drawn(b, blocks, values, size, size)
    strides = dict.fromkeys(("stride_init_state_token", "stride_final_state_token"), values * size * size)
    yield Launch(
        f"{_OPS}.fused_recurrent.fused_recurrent_gated_delta_rule_packed_decode_kernel",
        (1, rows * values),
        {
            **gates,
            **shapes,
            **strides,
            "mixed_qkv": _drawn(b, rows + 1, width),
            "a": 9 * _drawn(b, rows + 1, values),
            "b": _drawn(b, rows + 1, values),
            "o": np.full((rows + 1, values, size), np.nan, dtype=np.float32),
            "h0": states,
            "ht": states,
            "ssm_state_indices": b.random.permutation(blocks)[:rows].astype(np.int32),
            "scale": size**-0.5,
            "stride_mixed_qkv_tok": width,
            "stride_a_tok": values,
            "stride_b_tok": values,
            "stride_indices_seq": 1,
            "SOFTPLUS_THRESHOLD": 20.0,
            "USE_QK_L2NORM_IN_KERNEL": b.seed % 3 != 1,
            "SPLIT_BATCH_HEAD_GRID": False,
        },
    )
    longest = max([1, *b.query.tolist()])
    for has_drafts in (False, True):
        yield Launch(
            f"{_OPS}.fused_sigmoid_gating.fused_sigmoid_gating_delta_rule_update_kernel",
            (1, 1, rows * values),
            {
                **gates,
                **shapes,
                **strides,
                "a": 9 * _drawn(b, count + 1, values),
                "b": _drawn(b, count + 1, values),
                "beta": 1.0,
                "threshold": 20.0,
                "q": _drawn(b, count + 1, heads, size),
                "k": _drawn(b, count + 1, heads, size),
                "v": _drawn(b, count + 1, values, size),
                "o": np.full((count + 1, values, size), np.nan, dtype=np.float32),
                "h0": states,
                "ht": states,
                "cu_seqlens": b.starts.astype(np.int32),
                # Some rows have no slot; all other slots are distinct.
                "ssm_state_indices": b.random.integers(0, blocks, (rows, longest)).astype(np.int32),
                "num_accepted_tokens": b.random.integers(1, longest + 1, rows).astype(np.int32) if has_drafts else None,
                "scale": size**-0.5,
                "N": rows,
                "T": count,
                "B": 1,
                "stride_indices_seq": longest,
                "stride_indices_tok": 1,
                "USE_INITIAL_STATE": True,
                "INPLACE_FINAL_STATE": True,
                "USE_QK_L2NORM_IN_KERNEL": b.seed % 3 != 1,
                "IS_VARLEN": True,
                "IS_CONTINUOUS_BATCHING": True,
                "IS_SPEC_DECODING": has_drafts,
                "IS_KDA": False,
            },
        )
    if count and sizes.length < 1000:
        yield _split(b, heads, values, size)


def _split(b: Batch, heads: int, values: int, size: int) -> Launch:
    """Return a launch that splits the convolution's output and computes the gates."""
    count, width = b.num_tokens, 2 * heads * size + values * size
    return Launch(
        f"{_OPS}.fused_gdn_prefill_post_conv._fused_post_conv_kernel",
        (num_blocks_of(count, _TOKENS_BLOCK), heads + values),
        {
            "mixed_qkv_ptr": _drawn(b, count + 1, width),
            "a_ptr": 9 * _drawn(b, count + 1, values),
            "b_ptr": _drawn(b, count + 1, values),
            "A_log_ptr": _drawn(b, values),
            "dt_bias_ptr": _drawn(b, values),
            "q_ptr": np.full((count + 1, heads, size), np.nan, dtype=np.float32),
            "k_ptr": np.full((count + 1, heads, size), np.nan, dtype=np.float32),
            "v_ptr": np.full((count + 1, values, size), np.nan, dtype=np.float32),
            "g_ptr": np.full((count + 1, values), np.nan, dtype=np.float32),
            "beta_ptr": np.full((count + 1, values), np.nan, dtype=np.float32),
            "stride_x_tok": width,
            "stride_a_tok": values,
            "stride_b_tok": values,
            "stride_q_tok": heads * size,
            "stride_k_tok": heads * size,
            "stride_v_tok": values * size,
            "L": count,
            "H": heads,
            "HV": values,
            "K": size,
            "V": size,
            "APPLY_L2NORM": b.seed % 3 != 1,
            "L2NORM_EPS": 1e-6,
            "OUTPUT_G_EXP": b.seed % 2 == 1,
            "SOFTPLUS_THRESHOLD": 20.0,
            "BLOCK_T": _TOKENS_BLOCK,
            "BK": power_of_2(size),
            "BV": power_of_2(size),
        },
    )


def prompts_held(batches: list[Batch]) -> dict[str, Any]:
    """Count prefill batches on which our replacement equals the kernels, up to rounding."""
    _interpretable()
    counts, example = Counter[str](), ""
    for batch in batches:
        differs = _prompts_differ(batch)
        counts["same" if not differs else "other"] += 1
        example = example or differs
    return {"kernel": PROMPTS, "counts": dict(counts), "is_of_this": True, "example": example}


def _prompts_differ(b: Batch) -> str:
    """Return how the prefill kernels and our replacement differ; "" within the tolerance."""
    chunks, index = import_module(f"{_OPS}.chunk"), import_module(f"{_OPS}.index")
    # Rows without tokens come last.
    lengths = [length for length in b.query.tolist() if length]
    starts = np.cumsum([0, *lengths, 0]).astype(np.int32)
    heads, values, size, count = 1 + b.seed % 2, 2 + 2 * (b.seed % 2), 16, int(starts[-1])
    queries, keys = (_of_length_one(_drawn(b, count, heads, size)) for _ in range(2))
    each = _drawn(b, count, values, size)
    gates, betas = -np.abs(_drawn(b, count, values)), b.random.uniform(0, 1, (count, values)).astype(np.float32)
    before = _drawn(b, len(starts) - 1, values, size, size)
    output, after = np.empty_like(each), np.empty_like(before)
    advance_rows(
        queries=queries,
        keys=keys,
        values=each,
        gates=gates,
        betas=betas,
        before=before,
        starts=starts,
        output=output,
        after=after,
    )
    rows = torch.from_numpy(starts)
    _, theirs, _, left, *_ = chunks.chunk_gated_delta_rule_fwd(
        *(torch.from_numpy(given)[None] for given in (queries, keys, each, gates, betas)),
        scale=size**-0.5,
        initial_state=torch.from_numpy(before),
        output_final_state=True,
        cu_seqlens=rows,
        chunk_indices=index.prepare_chunk_indices(rows, _CHUNK),
        chunk_offsets=index.prepare_chunk_offsets(rows, _CHUNK),
    )
    most = max(np.abs(theirs[0].numpy() - output).max(), np.abs(left.numpy() - after).max())
    return "" if most <= _TOLERANCE else f"lengths {lengths}: by {most:.2g}"


def _interpretable() -> None:
    """Patch the autotuned prefill kernels so that Triton's interpreter can run them."""
    language, tuner = import_module("triton.language"), import_module("triton.runtime.autotuner").Autotuner

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        return self.fn.run(*arguments, **options, **self.configs[0].all_kwargs())

    tuner.run = run
    for name in ("chunk_delta_h", "chunk_o", "chunk_scaled_dot_kkt"):
        module: Any = import_module(f"{_OPS}.{name}")
        module.exp = exponential(None)

    def counted(stop: Any) -> Iterator[Any]:
        """Yield loop counters as Triton tensors, as in a compiled loop."""
        for number in range(int(stop)):
            yield language.program_id(0) * 0 + number

    module = import_module(f"{_OPS}.chunk_delta_h")
    module.range = counted


def _drawn(b: Batch, *shape: int) -> Array:
    return b.random.normal(0, 1, shape).astype(np.float32)


def _of_length_one(rows: Array) -> Array:
    found: Array = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return found
