"""Attention that sums a prefix which all rows share once, then the rest of each row."""

import numpy as np

from workers.kernels.arithmetic import arange, mix, words
from workers.kernels.arithmetic import attention as weighted
from workers.kernels.signature import In, InOut, Out


def cascade_attention(
    kv: In,
    block_table: In,
    token_row: In,
    positions: In,
    hidden: InOut,
    output: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    num_common_blocks: int,
) -> None:
    """Do what `attention` does, for rows whose first `num_common_blocks` blocks are those of row 0.

    Shapes: as for `attention`. Every token of the batch must lie behind the common blocks: it attends to all of them,
    without a mask. Sums are exact, so what is added in which order does not matter.
    Source: cascade inference (FlashInfer, Ye et al. 2024) for the shape: a shared part, and a part a row.
    """
    start = num_common_blocks * block_size
    num_rows, length = len(block_table) // max_blocks, (num_blocks_max - num_common_blocks) * block_size
    table = np.maximum(block_table.reshape(num_rows, max_blocks)[:, :num_blocks_max], 0)
    blocks = kv.reshape(-1, block_size)
    common = blocks[table[0, :num_common_blocks]].ravel()
    cached = blocks[table[:, num_common_blocks:]].reshape(num_rows, length)
    index = np.maximum(token_row, 0) * length + np.maximum(positions - start, 0)
    sums = np.add.accumulate(cached, axis=1).take(index)
    sums += np.add.reduce(common)
    sums_position = np.add.accumulate(cached * words(arange(start + length)[start:]), axis=1).take(index)
    sums_position += np.add.reduce(common * words(arange(start)))
    attended = weighted(sums, sums_position, positions)
    real = token_row >= 0
    np.multiply(attended, real, out=output)
    attended += hidden
    np.copyto(hidden, mix(attended), where=real)
