"""Keep recurrent states with cache blocks: of a full block the state at its end, of the last block the newest one."""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange
from workers.kernels.state_copy.arguments import StateCopy, num_block_columns


def state_copy(a: StateCopy) -> None:
    """Copy each row's states to the blocks its accepted tokens lie in: as many as were really reached."""
    k, width, num_rows = a.num_speculative_tokens, a.conv_width, np.count_nonzero(a.state_slot >= 0)
    base = (a.num_computed + a.num_scheduled - 1 - a.num_drafts)[:num_rows, None]
    kept = base + a.accepted[:num_rows, None]
    column = np.maximum(base - 1, 0) // a.block_size + arange(num_block_columns(a.block_size, k))
    table = a.block_table.reshape(-1, a.max_blocks)[:num_rows]
    block = np.take_along_axis(table, np.minimum(column, a.max_blocks - 1), axis=1)
    reached = (column * a.block_size < kept) & (column < a.max_blocks) & (block >= 0)
    offset = np.minimum((column + 1) * a.block_size, kept) - base
    slot = np.broadcast_to(a.state_slot[:num_rows, None], column.shape)[reached]
    block = block[reached]
    a.block_states[block] = a.states[slot * (2 + k) + offset[reached]]
    windows = (slot * (width + k) + offset[reached])[:, None] + arange(width - 1)
    a.block_windows.reshape(-1, width - 1)[block] = a.conv[windows]
