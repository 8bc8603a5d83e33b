"""NumPy definition of the gated-delta-net kernel for draft tokens (`fused_sigmoid_gating`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.delta_rule import advance_state, decay, sigmoid, squares
from workers.targets.vllm.inside.kernels.fused_recurrent import is_in_float32

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating"


def delta_rule_update(programs: tuple[int, ...], args: Given) -> None:
    """Advance each row's state token by token; write each token's state to its own slot.

    With draft tokens, a row starts from the state after the accepted tokens of the step before.
    """
    size, keys, heads = args.K, args.H, args.HV
    share, count = heads // keys, heads * args.V * size
    rates, bias = args.A_log.span(0, heads), args.dt_bias.span(0, heads)
    for row in range(programs[2] // heads):
        start, stop = args.cu_seqlens[row], args.cu_seqlens[row + 1]
        if start == stop:
            continue
        slots = row * args.stride_indices_seq
        kept = args.num_accepted_tokens[row] if args.IS_SPEC_DECODING else 1
        slot = args.ssm_state_indices[slots + kept - 1]
        if slot <= 0:
            continue
        state = args.h0.span(slot * args.stride_init_state_token, count).reshape(heads, args.V, size).copy()
        for token in range(start, stop):
            query, key = (each.span(token * keys * size, keys * size).reshape(keys, size) for each in (args.q, args.k))
            value = args.v.span(token * heads * args.V, heads * args.V).reshape(heads, args.V)
            gate = decay(rates, args.a.span(token * heads, heads) + bias, args.threshold)
            beta = sigmoid(args.b.span(token * heads, heads))
            if args.USE_QK_L2NORM_IN_KERNEL:
                one = np.float32(1)
                query, key = query * (one / np.sqrt(squares(query))), key * (one / np.sqrt(squares(key)))
            query, key = (each.repeat(share, axis=0) for each in (query * np.float32(args.scale), key))
            output = advance_state(state, query, key, value, gate, beta)
            args.o.span(token * heads * args.V, heads * args.V)[:] = output.reshape(-1)
            left = args.ssm_state_indices[slots + token - start]
            if left > 0:
                args.ht.span(left * args.stride_final_state_token, count)[:] = state.reshape(-1)


def _is_plain(args: Mapping[str, Any]) -> bool:
    """Return whether this definition covers a launch: state slots per row, a gate per head."""
    has_slots = args["IS_VARLEN"] and args["USE_INITIAL_STATE"] and args["IS_CONTINUOUS_BATCHING"]
    is_gated = args["INPLACE_FINAL_STATE"] and not args["IS_KDA"] and args["beta"] == 1
    return has_slots and is_gated and is_in_float32(args, "A_log a b dt_bias q k v o h0 ht")


DEFINITIONS = {
    "fused_sigmoid_gating_delta_rule_update_kernel": Definition(
        delta_rule_update,
        "34f75155fb8b0138",
        _is_plain,
        # In a process without Triton, where the kernel's source differs.
        others=(Definition(delta_rule_update, "192031c1b3878b87", _is_plain),),
    ),
}
