"""Cases of attention: rows of every length with poison after each; exact and larger bounds."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Batch, batches
from workers.kernels.attention.definition import Attention
from workers.kernels.sentinels import POISON


def of(batch: Batch, num_blocks_max: int) -> Attention:
    """Return the arguments of `attention` for a batch."""
    return Attention(
        kv=batch.cache(),
        block_table=batch.block_table,
        token_row=batch.token_row,
        positions=batch.positions,
        hidden=batch.words(batch.num_tokens),
        output=np.full(batch.num_tokens, POISON, dtype=np.uint64),
        block_size=batch.block_size,
        max_blocks=batch.max_blocks,
        num_blocks_max=num_blocks_max,
    )


def cases() -> Iterator[Attention]:
    """Yield every batch; every second one bounds the number of blocks by the maximum."""
    for index, batch in enumerate(batches()):
        yield of(batch, batch.max_blocks if index % 2 else batch.num_blocks_max)
