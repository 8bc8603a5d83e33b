"""NumPy definition of the gated-delta-net kernel for draft tokens (`fused_sigmoid_gating`)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Definition, Given
from workers.targets.vllm.inside.kernels.delta_rule import advanced, decay, sigmoid, squares
from workers.targets.vllm.inside.kernels.fused_recurrent import is_in_float32

MODULE = "vllm.third_party.flash_linear_attention.ops.fused_sigmoid_gating"


def delta_rule_update(programs: tuple[int, ...], given: Given) -> None:
    """Advance each row's state token by token; write the state after each token to its own slot.

    With draft tokens, a row starts from the state after the accepted tokens of the step before.
    """
    size, keys, heads = given.K, given.H, given.HV
    share, count = heads // keys, heads * given.V * size
    rates, bias = given.A_log.span(0, heads), given.dt_bias.span(0, heads)
    for row in range(programs[2] // heads):
        start, stop = given.cu_seqlens[row], given.cu_seqlens[row + 1]
        if start == stop:
            continue
        slots = row * given.stride_indices_seq
        kept = given.num_accepted_tokens[row] if given.IS_SPEC_DECODING else 1
        slot = given.ssm_state_indices[slots + kept - 1]
        if slot <= 0:
            continue
        state = given.h0.span(slot * given.stride_init_state_token, count).reshape(heads, given.V, size).copy()
        for token in range(start, stop):
            query, key = (
                each.span(token * keys * size, keys * size).reshape(keys, size) for each in (given.q, given.k)
            )
            value = given.v.span(token * heads * given.V, heads * given.V).reshape(heads, given.V)
            gate = decay(rates, given.a.span(token * heads, heads) + bias, given.threshold)
            beta = sigmoid(given.b.span(token * heads, heads))
            if given.USE_QK_L2NORM_IN_KERNEL:
                one = np.float32(1)
                query, key = query * (one / np.sqrt(squares(query))), key * (one / np.sqrt(squares(key)))
            query, key = (each.repeat(share, axis=0) for each in (query * np.float32(given.scale), key))
            output = advanced(state, query, key, value, gate, beta)
            given.o.span(token * heads * given.V, heads * given.V)[:] = output.reshape(-1)
            left = given.ssm_state_indices[slots + token - start]
            if left > 0:
                given.ht.span(left * given.stride_final_state_token, count)[:] = state.reshape(-1)


def _is_plain(given: Mapping[str, Any]) -> bool:
    """Return whether the definition covers a launch: state slots per row, a gate per head."""
    has_slots = given["IS_VARLEN"] and given["USE_INITIAL_STATE"] and given["IS_CONTINUOUS_BATCHING"]
    is_gated = given["INPLACE_FINAL_STATE"] and not given["IS_KDA"] and given["beta"] == 1
    return has_slots and is_gated and is_in_float32(given, "A_log a b dt_bias q k v o h0 ht")


DEFINITIONS = {
    "fused_sigmoid_gating_delta_rule_update_kernel": Definition(
        delta_rule_update,
        "34f75155fb8b0138",
        _is_plain,
        # In a process without Triton, where the kernel's source differs.
        others=(Definition(delta_rule_update, "192031c1b3878b87", _is_plain),),
    ),
}
