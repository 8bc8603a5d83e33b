"""NumPy definitions of the short-convolution kernels in `...mamba.ops.causal_conv1d`.

Not defined, hence interpreted: states at block ends, and rows of different lengths without draft tokens.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from workers.simulated_torch.kernel_definitions import Array, Definition, Given

MODULE = "vllm.model_executor.layers.mamba.ops.causal_conv1d"


def causal_conv1d_fwd(programs: tuple[int, ...], args: Given) -> None:
    """Convolve each row's prefill tokens, starting from its state; write the new state."""
    size, keep = args.dim, args.KERNEL_WIDTH - 1
    strides_x, strides_o = (args.stride_x_token, args.stride_x_dim), (args.stride_o_token, args.stride_o_dim)
    strides = args.stride_istate_token, args.stride_istate_dim
    for program in range(programs[0]):
        row, chunk = args.batch_ptr[program], args.token_chunk_offset_ptr[program]
        if row == args.pad_slot_id:
            continue
        start = args.query_start_loc_ptr[row]
        length = max(0, args.query_start_loc_ptr[row + 1] - start)
        slot = args.cache_indices_ptr[row * args.stride_cache_indices]
        if args.HAS_NULL_BLOCK and slot == args.null_block_id:
            continue
        tokens = args.x_ptr.rows(start * args.stride_x_token, (length, size), strides_x)
        first = args.BLOCK_M * chunk
        if chunk == 0:
            state = args.initial_states_ptr.rows(slot * args.stride_istate_seq, (keep, size), strides)
            before = state.copy() if args.has_initial_states_ptr[row] else np.zeros_like(state)
            state[:] = np.concatenate([before, tokens])[length:]
        else:
            before = tokens[first - keep : first]
        found = _convolve(before, tokens[first : first + args.BLOCK_M], args)
        args.o_ptr.rows((start + first) * args.stride_o_token, (len(found), size), strides_o)[:] = found


def causal_conv1d_update(programs: tuple[int, ...], args: Given) -> None:
    """Convolve each row's decode tokens, starting from its state, and write the new state.

    With draft tokens a state has a column for each: a row continues after its accepted ones, and all are written.
    """
    size, keep = args.dim, args.KERNEL_WIDTH - 1
    strides = args.stride_conv_state_tok, args.stride_conv_state_dim
    strides_x, strides_o = (args.stride_x_token, args.stride_x_dim), (args.stride_o_token, args.stride_o_dim)
    for row in range(min(programs[0], args.batch)):
        slot = args.conv_state_indices_ptr[row * args.stride_state_indices]
        if args.HAS_NULL_BLOCK and slot == args.null_block_id:
            continue
        count, start_x, start_o = args.seqlen, row * args.stride_x_seq, row * args.stride_o_seq
        if args.IS_VARLEN:
            start = args.query_start_loc_ptr[row]
            count = args.query_start_loc_ptr[row + 1] - start
            start_x, start_o = start * args.stride_x_token, start * args.stride_o_token
        if count == 0:
            continue
        tokens = args.x_ptr.rows(start_x, (count, size), strides_x)
        kept = args.num_accepted_tokens_ptr[row] if args.IS_SPEC_DECODING else 1
        first = slot * args.stride_conv_state_seq
        behind = args.conv_state_ptr.rows(first + (kept - 1) * args.stride_conv_state_tok, (keep, size), strides)
        before = behind.copy()
        found = _convolve(before, tokens, args)
        passed = 1 if args.IS_SPEC_DECODING else count
        after = np.concatenate([before, tokens])[passed:]
        args.conv_state_ptr.rows(first, (len(after), size), strides)[:] = after
        args.o_ptr.rows(start_o, (count, size), strides_o)[:] = found


def _convolve(before: Array, tokens: Array, args: Given) -> Array:
    """Return the convolution of `tokens`; `before` has the input tokens that precede them."""
    width, size, count = args.KERNEL_WIDTH, args.dim, len(tokens)
    weights = args.w_ptr.rows(0, (width, size), (args.stride_w_width, args.stride_w_dim))
    every = np.concatenate([before, tokens])
    found = np.zeros((count, size), dtype=np.float32)
    if args.HAS_BIAS:
        found += args.bias_ptr.span(0, size)
    for number in range(width):
        found = found + every[number : number + count] * weights[number]
    return found / (1 + np.exp(-found)) if args.SILU_ACTIVATION else found


def _is_plain(args: Mapping[str, Any]) -> bool:
    """Return whether this definition covers a launch: float32, no state at block ends."""
    tensors = (args["x_ptr"], args["w_ptr"], args["o_ptr"], args["bias_ptr"])
    in_float32 = all(each is None or each.dtype == torch.float32 for each in tensors)
    return in_float32 and not args.get("IS_APC_ENABLED") and not args["launch_pdl"]


def _is_plain_update(args: Mapping[str, Any]) -> bool:
    keep, is_drafted = args["KERNEL_WIDTH"] - 1, args["IS_SPEC_DECODING"]
    kept = keep + (args["seqlen"] - 1 if is_drafted else 0)
    is_even = args["IS_VARLEN"] == is_drafted and args["seqlen"] > 0
    return is_even and args["state_len"] == kept and _is_plain(args)


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
