"""Let rows go on from the recurrent states that are kept with the blocks they took over."""

import triton
import triton.language as tl

from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import PAD_BLOCK, PAD_STATE_SLOT, In, InOut, check_flat

BLOCK_ROWS = 32


def state_restore(
    taken_over: In,
    state_slot: In,
    block_states: In,
    block_windows: In,
    slot_accepted: InOut,
    states: InOut,
    conv: InOut,
    num_speculative_tokens: int,
    conv_width: int,
) -> None:
    """Put the state and window of block taken_over[row] where the row's slot is read first, and set its count to 0.

    Shapes: taken_over, state_slot [num_rows]; block_states [num_blocks] and block_windows [num_blocks * (W - 1)]
    uint64; slot_accepted [num_state_slots]; states [num_state_slots * (2 + K)] and conv [num_state_slots * (W + K)]
    uint64. Rows with taken_over < 0, and padding rows, are left alone. No two rows have the same slot.
    """
    check_flat(taken_over, state_slot, block_states, block_windows, slot_accepted, states, conv)
    num_rows, k = state_slot.numel(), num_speculative_tokens
    launch(_kernel, (-(-num_rows // BLOCK_ROWS),))(
        taken_over, state_slot, block_states, block_windows, slot_accepted, states, conv,
        num_rows,
        2 + k, conv_width + k,
        conv_width - 1, BLOCK_ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows", "stride_states", "stride_conv"])
def _kernel(
    p_taken_over, p_state_slot, p_block_states, p_block_windows, p_slot_accepted, p_states, p_conv,
    num_rows,
    stride_states, stride_conv,
    WINDOW: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_block = tl.load(p_taken_over + o_row, mask=o_row < num_rows, other=PAD_BLOCK)
    o_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    joins = (o_block >= 0) & (o_slot >= 0)
    tl.store(p_slot_accepted + o_slot, tl.zeros([BLOCK_ROWS], dtype=tl.int64), mask=joins)
    tl.store(p_states + o_slot * stride_states, tl.load(p_block_states + o_block, mask=joins, other=0), mask=joins)
    for index in tl.static_range(WINDOW):
        b_input = tl.load(p_block_windows + o_block * WINDOW + index, mask=joins, other=0)
        tl.store(p_conv + o_slot * stride_conv + index, b_input, mask=joins)
