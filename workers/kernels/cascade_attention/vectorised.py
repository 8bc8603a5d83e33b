"""Attention that sums a prefix which all rows share once, then the rest of each row."""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange, mix, words
from workers.kernels.arithmetic.vectorised import attention as weighted
from workers.kernels.cascade_attention.arguments import CascadeAttention


def cascade_attention(a: CascadeAttention) -> None:
    """Do what `attention` does, for rows whose first `num_common_blocks` blocks are those of row 0."""
    start = a.num_common_blocks * a.block_size
    num_rows, length = len(a.block_table) // a.max_blocks, (a.num_blocks_max - a.num_common_blocks) * a.block_size
    table = np.maximum(a.block_table.reshape(num_rows, a.max_blocks)[:, : a.num_blocks_max], 0)
    blocks = a.kv.reshape(-1, a.block_size)
    common = blocks[table[0, : a.num_common_blocks]].ravel()
    cached = blocks[table[:, a.num_common_blocks :]].reshape(num_rows, length)
    index = np.maximum(a.token_row, 0) * length + np.maximum(a.positions - start, 0)
    sums = np.add.accumulate(cached, axis=1).take(index)
    sums += np.add.reduce(common)
    sums_position = np.add.accumulate(cached * words(arange(start + length)[start:]), axis=1).take(index)
    sums_position += np.add.reduce(common * words(arange(start)))
    attended = weighted(sums, sums_position, a.positions)
    real = a.token_row >= 0
    np.multiply(attended, real, out=a.output)
    attended += a.hidden
    np.copyto(a.hidden, mix(attended), where=real)
