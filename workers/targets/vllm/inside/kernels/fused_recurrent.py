"""NumPy definition of the gated-delta-net kernel for rows of one token (`fused_recurrent`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.delta_rule import advanced, decay, sigmoid, squares

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_recurrent"


def packed_decode(programs: tuple[int, ...], given: Given) -> None:
    """Advance each decode row's state by one token, in place; a row without a slot outputs 0."""
    size, keys, heads = given.K, given.H, given.HV
    share = heads // keys
    rates, bias = given.A_log.span(0, heads), given.dt_bias.span(0, heads)
    for row in range(programs[1] // heads):
        output = given.o.rows(row * heads * given.V, (heads, given.V), (given.V, 1))
        slot = given.ssm_state_indices[row * given.stride_indices_seq]
        if slot <= 0:
            output[:] = 0
            continue
        line = given.mixed_qkv.span(row * given.stride_mixed_qkv_tok, 2 * keys * size + heads * given.V)
        query, key = line[: 2 * keys * size].reshape(2, keys, size)
        value = line[2 * keys * size :].reshape(heads, given.V)
        if given.USE_QK_L2NORM_IN_KERNEL:
            query, key = query / np.sqrt(squares(query)), key / np.sqrt(squares(key))
        query, key = (each.repeat(share, axis=0) for each in (query * np.float32(given.scale), key))
        gate = decay(rates, given.a.span(row * given.stride_a_tok, heads) + bias, given.SOFTPLUS_THRESHOLD)
        beta = sigmoid(given.b.span(row * given.stride_b_tok, heads))
        before = given.h0.span(slot * given.stride_init_state_token, heads * given.V * size)
        state = before.reshape(heads, given.V, size).copy()
        output[:] = advanced(state, query, key, value, gate, beta)
        given.ht.span(slot * given.stride_final_state_token, state.size)[:] = state.reshape(-1)


def is_in_float32(given: Mapping[str, Any], names: str) -> bool:
    """Return whether the head size K fills its block, and all named tensors are float32."""
    return given["K"] == given["BK"] and all(given[name].dtype == torch.float32 for name in names.split())


def _is_plain(given: Mapping[str, Any]) -> bool:
    return not given["SPLIT_BATCH_HEAD_GRID"] and is_in_float32(given, "mixed_qkv a b A_log dt_bias o h0 ht")


DEFINITIONS = {
    "fused_recurrent_gated_delta_rule_packed_decode_kernel": Definition(
        packed_decode,
        "69a9f093bbdc8522",
        _is_plain,
        # In a process without Triton, where the kernel's source differs.
        others=(Definition(packed_decode, "5a61c9e5638eff76", _is_plain),),
    ),
}
