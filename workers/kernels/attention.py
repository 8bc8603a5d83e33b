"""Paged causal attention with odd integer weights."""

import numpy as np

from workers.kernels.arithmetic import arange, integer, mix, words
from workers.kernels.arithmetic import attention as weighted
from workers.kernels.signature import In, InOut, Out


def attention(
    kv: In,
    block_table: In,
    token_row: In,
    positions: In,
    hidden: InOut,
    output: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
) -> None:
    """Set output[i] = sum over j <= position of kv[j] * (2 (position - j) + 1), and advance the hidden words by it.

    Shapes: kv [num_blocks * block_size] uint64; block_table [num_rows * max_blocks]; the others [num_tokens].
    `num_blocks_max` bounds the blocks of any row. Padding tokens have output 0 and keep their hidden word.
    """
    num_rows = len(block_table) // max_blocks
    table = np.maximum(block_table, integer(0)).reshape(num_rows, max_blocks)[:, :num_blocks_max]
    length = num_blocks_max * block_size
    cached = kv.reshape(-1, block_size)[table].reshape(num_rows, length)
    index = np.maximum(token_row, integer(0)) * integer(length) + positions
    sums = np.add.accumulate(cached, axis=1).take(index)
    sums_position = np.add.accumulate(cached * words(arange(length)), axis=1).take(index)
    attended = weighted(sums, sums_position, positions)
    real = token_row >= integer(0)
    output.fill(0)
    np.copyto(output, attended, where=real)
    attended += hidden
    np.copyto(hidden, mix(attended), where=real)
