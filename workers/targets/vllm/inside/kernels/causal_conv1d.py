"""NumPy definitions of the short-convolution kernels in `...mamba.ops.causal_conv1d`.

Not defined, hence interpreted: states at block ends, and rows of different lengths without draft tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.model_executor.layers.mamba.ops.causal_conv1d"


def causal_conv1d_fwd(programs: tuple[int, ...], given: Given) -> None:
    """Convolve prefill tokens, starting from each row's state; the first chunk writes the state."""
    size, keep = given.dim, given.KERNEL_WIDTH - 1
    strides_x, strides_o = (given.stride_x_token, given.stride_x_dim), (given.stride_o_token, given.stride_o_dim)
    strides = given.stride_istate_token, given.stride_istate_dim
    for program in range(programs[0]):
        row, chunk = given.batch_ptr[program], given.token_chunk_offset_ptr[program]
        if row == given.pad_slot_id:
            continue
        start = given.query_start_loc_ptr[row]
        length = max(0, given.query_start_loc_ptr[row + 1] - start)
        slot = given.cache_indices_ptr[row * given.stride_cache_indices]
        if given.HAS_NULL_BLOCK and slot == given.null_block_id:
            continue
        tokens = given.x_ptr.rows(start * given.stride_x_token, (length, size), strides_x)
        first = given.BLOCK_M * chunk
        if chunk == 0:
            state = given.initial_states_ptr.rows(slot * given.stride_istate_seq, (keep, size), strides)
            before = state.copy() if given.has_initial_states_ptr[row] else np.zeros_like(state)
            state[:] = np.concatenate([before, tokens])[length:]
        else:
            before = tokens[first - keep : first]
        found = _convolved(before, tokens[first : first + given.BLOCK_M], given)
        given.o_ptr.rows((start + first) * given.stride_o_token, (len(found), size), strides_o)[:] = found


def causal_conv1d_update(programs: tuple[int, ...], given: Given) -> None:
    """Convolve each row's decode tokens, starting from its state, and write the new state.

    With draft tokens a state has a column for each: a row continues after its accepted ones, and all are written.
    """
    size, keep = given.dim, given.KERNEL_WIDTH - 1
    strides = given.stride_conv_state_tok, given.stride_conv_state_dim
    strides_x, strides_o = (given.stride_x_token, given.stride_x_dim), (given.stride_o_token, given.stride_o_dim)
    for row in range(min(programs[0], given.batch)):
        slot = given.conv_state_indices_ptr[row * given.stride_state_indices]
        if given.HAS_NULL_BLOCK and slot == given.null_block_id:
            continue
        count, start_x, start_o = given.seqlen, row * given.stride_x_seq, row * given.stride_o_seq
        if given.IS_VARLEN:
            start = given.query_start_loc_ptr[row]
            count = given.query_start_loc_ptr[row + 1] - start
            start_x, start_o = start * given.stride_x_token, start * given.stride_o_token
        if count == 0:
            continue
        tokens = given.x_ptr.rows(start_x, (count, size), strides_x)
        kept = given.num_accepted_tokens_ptr[row] if given.IS_SPEC_DECODING else 1
        first = slot * given.stride_conv_state_seq
        behind = given.conv_state_ptr.rows(first + (kept - 1) * given.stride_conv_state_tok, (keep, size), strides)
        before = behind.copy()
        found = _convolved(before, tokens, given)
        passed = 1 if given.IS_SPEC_DECODING else count
        after = np.concatenate([before, tokens])[passed:]
        given.conv_state_ptr.rows(first, (len(after), size), strides)[:] = after
        given.o_ptr.rows(start_o, (count, size), strides_o)[:] = found


def _convolved(before: Array, tokens: Array, given: Given) -> Array:
    """Return the convolution outputs of `tokens`, which follow the input tokens `before`."""
    width, size, count = given.KERNEL_WIDTH, given.dim, len(tokens)
    weights = given.w_ptr.rows(0, (width, size), (given.stride_w_width, given.stride_w_dim))
    every = np.concatenate([before, tokens])
    found = np.zeros((count, size), dtype=np.float32)
    if given.HAS_BIAS:
        found += given.bias_ptr.span(0, size)
    for number in range(width):
        found = found + every[number : number + count] * weights[number]
    return found / (1 + np.exp(-found)) if given.SILU_ACTIVATION else found


def _is_plain(given: Mapping[str, Any]) -> bool:
    """Return whether the definition covers a launch: float32, no states kept at block ends."""
    tensors = (given["x_ptr"], given["w_ptr"], given["o_ptr"], given["bias_ptr"])
    in_float32 = all(each is None or each.dtype == torch.float32 for each in tensors)
    return in_float32 and not given.get("IS_APC_ENABLED") and not given["launch_pdl"]


def _is_plain_update(given: Mapping[str, Any]) -> bool:
    keep, is_drafted = given["KERNEL_WIDTH"] - 1, given["IS_SPEC_DECODING"]
    kept = keep + (given["seqlen"] - 1 if is_drafted else 0)
    is_even = given["IS_VARLEN"] == is_drafted and given["seqlen"] > 0
    return is_even and given["state_len"] == kept and _is_plain(given)


DEFINITIONS = {
    "_causal_conv1d_fwd_kernel": Definition(
        causal_conv1d_fwd,
        "33e2292f6353c287",
        _is_plain,
        # Versions: 0.33.0, and both releases in a process without Triton, where the kernel's source differs.
        others=(
            Definition(causal_conv1d_fwd, "b3845d5bc9ab6e50", _is_plain),
            Definition(causal_conv1d_fwd, "2673d8d16c78788e", _is_plain),
            Definition(causal_conv1d_fwd, "563aa28d45a8e8ad", _is_plain),
        ),
    ),
    "_causal_conv1d_update_kernel": Definition(
        causal_conv1d_update,
        "0c359f2f88a6f471",
        _is_plain_update,
        others=(
            Definition(causal_conv1d_update, "ad18164ba7e74774", _is_plain_update),
            Definition(causal_conv1d_update, "deb32205dbd8cc60", _is_plain_update),
            Definition(causal_conv1d_update, "2df1d596fc32a28c", _is_plain_update),
        ),
    ),
}
