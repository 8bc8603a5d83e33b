"""Keep recurrent states with cache blocks: of a full block the state at its end, of the last block the newest one."""

import triton
import triton.language as tl

from workers.kernels.state_copy import num_block_columns
from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import PAD_BLOCK, PAD_STATE_SLOT, In, InOut, check_flat

BLOCK_ROWS = 32


def state_copy(
    num_computed: In,
    num_scheduled: In,
    num_drafts: In,
    accepted: In,
    state_slot: In,
    block_table: In,
    states: In,
    conv: In,
    block_states: InOut,
    block_windows: InOut,
    block_size: int,
    max_blocks: int,
    num_speculative_tokens: int,
    conv_width: int,
) -> None:
    """Copy each row's states to the blocks its accepted tokens lie in: as many as were really reached.

    Shapes: num_computed (before the step), num_scheduled, num_drafts, accepted, state_slot [num_rows]; block_table
    [num_rows * max_blocks]; states [num_state_slots * (2 + K)] and conv [num_state_slots * (W + K)] uint64 as
    `recurrent_update` leaves them; block_states [num_blocks] and block_windows [num_blocks * (W - 1)] uint64.
    States[slot, j] belongs to position base + j, where base is the position of the token verified first. Block c of a
    row gets the state at min((c + 1) * block_size, base + accepted), for every block from that of token base - 1 on.
    Rows that share a block, which is full then, write the same state there. Padding rows (slot < 0) are left alone.
    Source: the `align` mode of vLLM's recurrent caches, with all boundaries of a run instead of the last one.
    """
    rows = (num_computed, num_scheduled, num_drafts, accepted, state_slot)
    check_flat(*rows, block_table, states, conv, block_states, block_windows)
    num_rows, k = state_slot.numel(), num_speculative_tokens
    num_columns = num_block_columns(block_size, k)
    grid = (-(-num_rows // BLOCK_ROWS),)
    launch(_kernel, grid)(
        *rows, block_table, states, conv, block_states, block_windows,
        num_rows, max_blocks,
        2 + k, conv_width + k,
        block_size, conv_width - 1, 1 << (num_columns - 1).bit_length(), BLOCK_ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows", "max_blocks", "stride_states", "stride_conv"])
def _kernel(
    p_num_computed, p_num_scheduled, p_num_drafts, p_accepted, p_state_slot, p_block_table, p_states, p_conv,
    p_block_states, p_block_windows,
    num_rows, max_blocks,
    stride_states, stride_conv,
    BLOCK_SIZE: tl.constexpr, WINDOW: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    o_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    is_row = o_slot >= 0
    b_base = tl.load(p_num_computed + o_row, mask=is_row, other=0) - 1
    b_base += tl.load(p_num_scheduled + o_row, mask=is_row, other=0)
    b_base -= tl.load(p_num_drafts + o_row, mask=is_row, other=0)
    b_kept = b_base + tl.load(p_accepted + o_row, mask=is_row, other=0)
    o_column = tl.arange(0, BLOCK_COLUMNS).to(tl.int64)
    b_column = (tl.maximum(b_base - 1, 0) // BLOCK_SIZE)[:, None] + o_column[None, :]
    is_reached = (b_column * BLOCK_SIZE < b_kept[:, None]) & (b_column < max_blocks) & is_row[:, None]
    b_offset = tl.minimum((b_column + 1) * BLOCK_SIZE, b_kept[:, None]) - b_base[:, None]
    b_block = tl.load(p_block_table + o_row[:, None] * max_blocks + b_column, mask=is_reached, other=PAD_BLOCK)
    is_kept = b_block >= 0
    b_state = tl.load(p_states + o_slot[:, None] * stride_states + b_offset, mask=is_kept, other=0)
    tl.store(p_block_states + b_block, b_state, mask=is_kept)
    for index in tl.static_range(WINDOW):
        b_input = tl.load(p_conv + o_slot[:, None] * stride_conv + b_offset + index, mask=is_kept, other=0)
        tl.store(p_block_windows + b_block * WINDOW + index, b_input, mask=is_kept)
