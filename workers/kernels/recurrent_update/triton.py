"""Advance each row's recurrent (Mamba) state; store one state per speculative position."""

import triton
import triton.language as tl

from workers.kernels.arithmetic.triton import DECAY, mix, window_weight
from workers.kernels.launch.triton import PAD_STATE_SLOT, kernel, launch
from workers.kernels.recurrent_update.definition import RecurrentUpdate

BLOCK_ROWS = 32
# All window widths up to this share a compiled kernel.
BLOCK_WIDTH_MIN = 8


def block_width_of(conv_width: int) -> int:
    """Return the block size (power of two) for a convolution window; 1 without recurrent layers."""
    size: int = triton.next_power_of_2(max(conv_width, BLOCK_WIDTH_MIN)) if conv_width else 1
    return size


def recurrent_update(a: RecurrentUpdate) -> None:
    num_rows = a.state_slot.numel()
    launch(_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.hidden, a.num_computed, a.query_start, a.num_scheduled, a.num_drafts, a.state_slot, a.accepted, a.states,
        a.conv,
        num_rows, a.num_queries_max,
        2 + a.num_speculative_tokens, a.conv_width + a.num_speculative_tokens,
        a.conv_width, block_width_of(a.conv_width), BLOCK_ROWS,
        num_warps=1,
    )  # fmt: skip


@kernel()
def _kernel(
    p_hidden, p_num_computed, p_query_start, p_num_scheduled, p_num_drafts, p_state_slot, p_accepted, p_states, p_conv,
    num_rows, num_queries_max,
    stride_states, stride_conv, width,
    BLOCK_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_tap = tl.arange(0, BLOCK_WIDTH).to(tl.int64)
    o_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    is_row = o_slot >= 0
    b_start = tl.load(p_query_start + o_row, mask=is_row, other=0)
    b_length = tl.load(p_num_scheduled + o_row, mask=is_row, other=0)
    b_first = b_length - 1 - tl.load(p_num_drafts + o_row, mask=is_row, other=0)
    is_started = is_row & (tl.load(p_num_computed + o_row, mask=is_row, other=0) > 0)
    # The accepted count of an unused slot is not a valid index.
    b_accepted = tl.load(p_accepted + o_row, mask=is_started, other=0)
    p_state, p_inputs = p_states + o_slot * stride_states, p_conv + o_slot * stride_conv
    b_state = tl.load(p_state + b_accepted, mask=is_started, other=0)
    is_history = (o_tap < width - 1)[None, :]
    b_window = tl.load(
        p_inputs[:, None] + b_accepted[:, None] + o_tap[None, :], mask=is_started[:, None] & is_history, other=0
    )
    # A row writes its inputs over those it reads: every thread must have read before any thread writes.
    tl.debug_barrier()
    o_kept = o_tap[None, :] - b_first[:, None]
    tl.store(p_inputs[:, None] + o_kept, b_window, mask=is_row[:, None] & is_history & (o_kept >= 0))
    tl.store(p_state, b_state, mask=is_row & (b_first == 0))
    # b_window is a ring buffer: the i-th input seen is in column i % width; columns past the width are 0.
    for index in range(num_queries_max):
        is_query = index < b_length
        o_seen = index + width - 1
        b_input = tl.load(p_hidden + b_start + index, mask=is_query, other=0)
        b_window = tl.where((o_tap == o_seen % width)[None, :], b_input[:, None], b_window)
        b_state = b_state * DECAY + mix(tl.sum(b_window * window_weight((o_seen - o_tap) % width)[None, :], axis=1))
        tl.store(p_hidden + b_start + index, mix(b_input + b_state), mask=is_query)
        o_state = index + 1 - b_first
        tl.store(p_state + o_state, b_state, mask=is_query & (o_state >= 0))
        o_input = o_seen - b_first
        tl.store(p_inputs + o_input, b_input, mask=is_query & (o_input >= 0))
