"""Store recurrent states with KV-cache blocks, at block ends and at the newest token."""

import triton.language as tl

from workers.kernels.launch.triton import PAD_BLOCK, PAD_STATE_SLOT, kernel, launch
from workers.kernels.state_copy.definition import StateCopy, num_block_columns

BLOCK_ROWS = 32


def state_copy(a: StateCopy) -> None:
    rows = (a.num_computed, a.num_scheduled, a.num_drafts, a.accepted, a.state_slot)
    num_rows, k = a.state_slot.numel(), a.num_speculative_tokens
    num_columns = num_block_columns(a.block_size, k)
    launch(_kernel, (-(-num_rows // BLOCK_ROWS),))(
        *rows, a.block_table, a.states, a.conv, a.block_states, a.block_windows,
        num_rows, a.max_blocks,
        2 + k, a.conv_width + k,
        a.block_size, a.conv_width - 1, 1 << (num_columns - 1).bit_length(), BLOCK_ROWS,
    )  # fmt: skip


@kernel()
def _kernel(
    p_num_computed, p_num_scheduled, p_num_drafts, p_accepted, p_state_slot, p_block_table, p_states, p_conv,
    p_block_states, p_block_windows,
    num_rows, max_blocks,
    stride_states, stride_conv, block_size, window,
    BLOCK_COLUMNS: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    is_row = o_slot >= 0
    b_base = tl.load(p_num_computed + o_row, mask=is_row, other=0) - 1
    b_base += tl.load(p_num_scheduled + o_row, mask=is_row, other=0)
    b_base -= tl.load(p_num_drafts + o_row, mask=is_row, other=0)
    b_kept = b_base + tl.load(p_accepted + o_row, mask=is_row, other=0)
    o_column = tl.arange(0, BLOCK_COLUMNS).to(tl.int64)
    b_column = (tl.maximum(b_base - 1, 0) // block_size)[:, None] + o_column[None, :]
    is_reached = (b_column * block_size < b_kept[:, None]) & (b_column < max_blocks) & is_row[:, None]
    b_offset = tl.minimum((b_column + 1) * block_size, b_kept[:, None]) - b_base[:, None]
    b_block = tl.load(p_block_table + o_row[:, None] * max_blocks + b_column, mask=is_reached, other=PAD_BLOCK)
    is_kept = b_block >= 0
    b_state = tl.load(p_states + o_slot[:, None] * stride_states + b_offset, mask=is_kept, other=0)
    tl.store(p_block_states + b_block, b_state, mask=is_kept)
    for index in range(window):
        b_input = tl.load(p_conv + o_slot[:, None] * stride_conv + b_offset + index, mask=is_kept, other=0)
        tl.store(p_block_windows + b_block * window + index, b_input, mask=is_kept)
