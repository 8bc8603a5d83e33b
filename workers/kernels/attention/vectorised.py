"""Paged causal attention with odd integer weights."""

import numpy as np

from workers.kernels.arithmetic.vectorised import TWO, ZERO, integer, mix
from workers.kernels.attention.arguments import Attention


def attention(a: Attention) -> None:
    """Set output[i] = sum over j <= position of kv[j] * (2 (position - j) + 1), and advance the hidden words by it."""
    num_rows, length = len(a.block_table) // a.max_blocks, a.num_blocks_max * a.block_size
    table = a.block_table.reshape(num_rows, a.max_blocks)[:, : a.num_blocks_max]
    # Clipped: a row may own fewer blocks, and padding is of no row.
    cached = a.kv.reshape(-1, a.block_size).take(table, axis=0, mode="clip").reshape(num_rows, length)
    index = a.token_row * integer(length)
    index += a.positions
    # Every weight grows by 2 with each position: what is wanted is twice the sum of all sums, less the last of them.
    sums = np.add.accumulate(cached, axis=1)
    attended = np.add.accumulate(sums, axis=1).take(index, mode="clip")
    attended *= TWO
    attended -= sums.take(index, mode="clip")
    real = a.token_row >= ZERO
    a.output.fill(0)
    np.copyto(a.output, attended, where=real)
    attended += a.hidden
    np.copyto(a.hidden, mix(attended), where=real)
