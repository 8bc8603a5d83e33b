"""Cases of cascade attention: rows with a common prefix, named correctly by row 0 only."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Row, batch
from workers.kernels.cascade_attention.definition import CascadeAttention
from workers.kernels.sentinels import PAD_BLOCK, POISON


def case(rows: list[Row], block_size: int, num_common_blocks: int, padding: int, is_larger: bool) -> CascadeAttention:
    """Return a batch with common blocks, which only the block table of row 0 names correctly."""
    made = batch(rows, k=1, block_size=block_size, vocab_size=3, padding=padding, seed=block_size)
    kv, table = made.cache(), made.block_table.reshape(made.num_rows, made.max_blocks)
    table[1:, :num_common_blocks] = np.arange(num_common_blocks) % 2 + PAD_BLOCK
    return CascadeAttention(
        kv=kv,
        block_table=table.ravel(),
        token_row=made.token_row,
        positions=made.positions,
        hidden=made.words(made.num_tokens),
        output=np.full(made.num_tokens, POISON, dtype=np.uint64),
        block_size=block_size,
        max_blocks=made.max_blocks,
        num_blocks_max=made.max_blocks if is_larger else made.num_blocks_max,
        num_common_blocks=num_common_blocks,
    )


def cases() -> Iterator[CascadeAttention]:
    """Yield 1, 3, 2 and 7 rows, some with a first token right after the common blocks."""
    yield case([Row(1, 0, 1)], 1, 1, 0, False)
    yield case([Row(2, 1, 3), Row(4, 0, 5), Row(1, 0, 3)], 3, 1, 1, True)
    yield case([Row(1, 0, 9), Row(2, 1, 6), Row(4, 0, 11)], 3, 2, 1, False)
    yield case([Row(1, 0, 80), Row(3, 0, 90)], 16, 5, 0, False)
    yield case([Row(2, 1, 48 + at) for at in (0, 15, 1, 17, 30, 2, 5)], 16, 3, 1, True)
