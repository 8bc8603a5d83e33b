"""Paged causal attention with odd integer weights."""

import numpy as np

from workers.kernels.arithmetic import TWO, ZERO, integer, mix
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
    num_rows, length = len(block_table) // max_blocks, num_blocks_max * block_size
    table = block_table.reshape(num_rows, max_blocks)[:, :num_blocks_max]
    # Clipped: a row may own fewer blocks, and padding is of no row.
    cached = kv.reshape(-1, block_size).take(table, axis=0, mode="clip").reshape(num_rows, length)
    index = token_row * integer(length)
    index += positions
    # Every weight grows by 2 with each position: what is wanted is twice the sum of all sums, less the last of them.
    sums = np.add.accumulate(cached, axis=1)
    attended = np.add.accumulate(sums, axis=1).take(index, mode="clip")
    attended *= TWO
    attended -= sums.take(index, mode="clip")
    real = token_row >= ZERO
    output.fill(0)
    np.copyto(output, attended, where=real)
    attended += hidden
    np.copyto(hidden, mix(attended), where=real)
