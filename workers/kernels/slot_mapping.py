"""Find the cache slot of each token."""

import numpy as np

from workers.kernels.signature import PAD_SLOT, In, Out


def slot_mapping(positions: In, token_row: In, block_table: In, slots: Out, block_size: int, max_blocks: int) -> None:
    """Map (row, position) to block_table[row, position // block_size] * block_size + position % block_size.

    Shapes: positions, token_row, slots [num_tokens]; block_table [num_rows * max_blocks].
    Padding tokens, and positions the block table does not cover, get PAD_SLOT.
    Source: vLLM PR #32951 moved this from the host (optimistic positions) to the device (true ones).
    """
    row = np.maximum(token_row, 0)
    index = positions // block_size
    block = block_table.take(row * max_blocks + np.minimum(index, max_blocks - 1))
    covered = (token_row >= 0) & (index < max_blocks) & (block >= 0)
    slots[:] = np.where(covered, block * block_size + positions % block_size, PAD_SLOT)
