"""Keep recurrent states with cache blocks: of a full block the state at its end, of the last block the newest one."""

import numpy as np

from workers.kernels.arithmetic import arange
from workers.kernels.signature import In, InOut


def num_block_columns(block_size: int, num_speculative_tokens: int) -> int:
    """Return the most blocks that one verified run and the token before it lie in."""
    return (num_speculative_tokens + block_size) // block_size + 1


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
    A chunk that crosses into a block must therefore end where that block begins, or be the first to reach into it.
    Padding rows (slot < 0) come last and are left alone.
    Source: the `align` mode of vLLM's recurrent caches, with all boundaries of a run instead of the last one.
    """
    k, width, num_rows = num_speculative_tokens, conv_width, np.count_nonzero(state_slot >= 0)
    base = (num_computed + num_scheduled - 1 - num_drafts)[:num_rows, None]
    kept = base + accepted[:num_rows, None]
    column = np.maximum(base - 1, 0) // block_size + arange(num_block_columns(block_size, k))
    reached = (column * block_size < kept) & (column < max_blocks)
    offset = np.minimum((column + 1) * block_size, kept) - base
    slot = np.broadcast_to(state_slot[:num_rows, None], column.shape)[reached]
    table = block_table.reshape(-1, max_blocks)[:num_rows]
    block = np.take_along_axis(table, np.minimum(column, max_blocks - 1), axis=1)[reached]
    block_states[block] = states[slot * (2 + k) + offset[reached]]
    windows = (slot * (width + k) + offset[reached])[:, None] + arange(width - 1)
    block_windows.reshape(-1, width - 1)[block] = conv[windows]
