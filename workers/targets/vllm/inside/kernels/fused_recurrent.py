"""NumPy definition of the gated-delta-net kernel for rows of one token (`fused_recurrent`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.delta_rule import advance_state, decay, sigmoid, squares

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_recurrent"


def packed_decode(programs: tuple[int, ...], args: Given) -> None:
    """Advance each decode row's state by one token, in place; a row without a slot outputs 0."""
    size, keys, heads = args.K, args.H, args.HV
    share = heads // keys
    rates, bias = args.A_log.span(0, heads), args.dt_bias.span(0, heads)
    for row in range(programs[1] // heads):
        output = args.o.rows(row * heads * args.V, (heads, args.V), (args.V, 1))
        slot = args.ssm_state_indices[row * args.stride_indices_seq]
        if slot <= 0:
            output[:] = 0
            continue
        line = args.mixed_qkv.span(row * args.stride_mixed_qkv_tok, 2 * keys * size + heads * args.V)
        query, key = line[: 2 * keys * size].reshape(2, keys, size)
        value = line[2 * keys * size :].reshape(heads, args.V)
        if args.USE_QK_L2NORM_IN_KERNEL:
            query, key = query / np.sqrt(squares(query)), key / np.sqrt(squares(key))
        query, key = (each.repeat(share, axis=0) for each in (query * np.float32(args.scale), key))
        gate = decay(rates, args.a.span(row * args.stride_a_tok, heads) + bias, args.SOFTPLUS_THRESHOLD)
        beta = sigmoid(args.b.span(row * args.stride_b_tok, heads))
        before = args.h0.span(slot * args.stride_init_state_token, heads * args.V * size)
        state = before.reshape(heads, args.V, size).copy()
        output[:] = advance_state(state, query, key, value, gate, beta)
        args.ht.span(slot * args.stride_final_state_token, state.size)[:] = state.reshape(-1)


def is_in_float32(args: Mapping[str, Any], names: str) -> bool:
    """Return whether the named tensors are float32, and the head size needs no padding."""
    return args["K"] == args["BK"] and all(args[name].dtype == torch.float32 for name in names.split())


def _is_plain(args: Mapping[str, Any]) -> bool:
    return not args["SPLIT_BATCH_HEAD_GRID"] and is_in_float32(args, "mixed_qkv a b A_log dt_bias o h0 ht")


DEFINITIONS = {
    "fused_recurrent_gated_delta_rule_packed_decode_kernel": Definition(
        packed_decode,
        "69a9f093bbdc8522",
        _is_plain,
        # In a process without Triton, where the kernel's source differs.
        others=(Definition(packed_decode, "5a61c9e5638eff76", _is_plain),),
    ),
}
