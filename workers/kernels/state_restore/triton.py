"""Restore recurrent states on a prefix-cache hit from states stored with the blocks."""

import triton.language as tl

from workers.kernels.launch.triton import PAD_BLOCK, PAD_STATE_SLOT, kernel, launch
from workers.kernels.state_restore.definition import StateRestore

BLOCK_ROWS = 32


def state_restore(a: StateRestore) -> None:
    num_rows, k = a.state_slot.numel(), a.num_speculative_tokens
    launch(_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.taken_over, a.state_slot, a.block_states, a.block_windows, a.slot_accepted, a.states, a.conv,
        num_rows,
        2 + k, a.conv_width + k,
        a.conv_width - 1, BLOCK_ROWS,
    )  # fmt: skip


@kernel()
def _kernel(
    p_taken_over, p_state_slot, p_block_states, p_block_windows, p_slot_accepted, p_states, p_conv,
    num_rows,
    stride_states, stride_conv, window,
    BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_block = tl.load(p_taken_over + o_row, mask=o_row < num_rows, other=PAD_BLOCK)
    o_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    joins = (o_block >= 0) & (o_slot >= 0)
    tl.store(p_slot_accepted + o_slot, tl.zeros([BLOCK_ROWS], dtype=tl.int64), mask=joins)
    tl.store(p_states + o_slot * stride_states, tl.load(p_block_states + o_block, mask=joins, other=0), mask=joins)
    for index in range(window):
        b_input = tl.load(p_block_windows + o_block * window + index, mask=joins, other=0)
        tl.store(p_conv + o_slot * stride_conv + index, b_input, mask=joins)
