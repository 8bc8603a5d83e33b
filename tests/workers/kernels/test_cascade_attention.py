"""Cascade attention sums a shared prefix once and equals attention."""

from dataclasses import replace

import numpy as np

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    words,
)
from workers.kernels.attention.numpy import attention
from workers.kernels.cascade_attention.numpy import cascade_attention
from workers.kernels.sentinels import POISON

NUM_SHARED = 2


def with_shared_prefix(batch: Batch) -> Batch:
    """Return a batch in which all rows share the first two blocks of row 0."""
    last = batch.num_rows * MAX_BLOCKS + NUM_SHARED
    free, shared = iter(batch.rng.permutation(last).tolist()), tuple(range(last, last + NUM_SHARED))
    rows = []
    for row in batch.rows:
        computed = min(max(row.computed, NUM_SHARED * BLOCK_SIZE), MAX_BLOCKS * BLOCK_SIZE - row.n)
        own = -(-(computed + row.n) // BLOCK_SIZE) - NUM_SHARED
        rows.append(replace(row, computed=computed, blocks=(*shared, *(next(free) for _ in range(own)))))
    return replace(batch, rows=tuple(rows), num_blocks=last + NUM_SHARED + 1)


@each_shape
def test_cascade_attention_equals_attention(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    batches_drawn = list(batches(num_rows, k, uniform, padded))
    assert batches_drawn
    for drawn in batches_drawn:
        batch = with_shared_prefix(drawn)
        arguments = {
            "kv": words(batch.rng, batch.num_slots),
            "block_table": batch.block_table,
            "token_row": batch.token_row,
            "positions": batch.positions,
            "hidden": batch.token_words(),
            "output": np.full(batch.num_tokens, POISON, dtype=np.uint64),
            "block_size": BLOCK_SIZE,
            "max_blocks": MAX_BLOCKS,
            "num_blocks_max": batch.num_blocks_max,
        }
        expected = call(attention, **arguments)
        for common in range(1, NUM_SHARED + 1):
            cascading = {**arguments, "num_common_blocks": common}
            found = call(cascade_attention, **cascading)
            assert found["output"].tolist() == expected["output"].tolist()
            assert found["hidden"].tolist() == expected["hidden"].tolist()
            assert_pad_never_indexes(cascade_attention, cascading, "kv")
