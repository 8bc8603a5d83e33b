"""Cases of prompt lookup: histories of few or many distinct ids, for all match lengths."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Batch, Row, batch, batches, integers
from workers.kernels.ngram.definition import NgramSearch, WriteTokens
from workers.kernels.sentinels import POISON


def search(batch: Batch, num_ids: int, num_proposed: int) -> NgramSearch:
    """Return an n-gram search in histories of `num_ids` distinct ids, with poison after them."""
    cache = batch.cache()
    history = batch.rng.integers(0, num_ids, len(cache)).astype(np.uint64)
    last = np.minimum(batch.verified_first + batch.rng.integers(0, batch.num_drafts + 1), batch.num_tokens - 1)
    table = batch.block_table.reshape(batch.num_rows, batch.max_blocks)
    is_history = np.zeros(len(cache), dtype=bool)
    for row in range(batch.num_real):
        at = np.arange(batch.positions[last[row]] + 1)
        is_history[table[row, at // batch.block_size] * batch.block_size + at % batch.block_size] = True
    next_tokens = np.where(batch.is_real, batch.rng.integers(0, num_ids, batch.num_rows), 0)
    # A match begins at the first token of the history.
    next_tokens[0] = history[table[0, 0] * batch.block_size]
    return NgramSearch(
        next_tokens=next_tokens,
        positions=batch.positions,
        token_index=last,
        valid=np.where(batch.is_real, np.arange(batch.num_rows) % 4 != 1, 0).astype(np.int64),
        block_table=batch.block_table,
        drafter_kv=np.where(is_history, history, np.uint64(POISON)),
        draft_tokens=integers(batch.num_rows * batch.k),
        block_size=batch.block_size,
        max_blocks=batch.max_blocks,
        num_blocks_max=batch.num_blocks_max,
        num_speculative_tokens=batch.k,
        num_proposed=num_proposed,
    )


def cases() -> Iterator[NgramSearch | WriteTokens]:
    """Yield every batch with K and with fewer draft tokens, and some long histories."""
    for each in batches():
        cache = each.cache()
        yield WriteTokens(input_ids=each.ids(), slots=each.slots, drafter_kv=cache)
        yield search(each, 2, each.k)
    for num_ids, num_proposed in ((4, 4), (200, 3), (9, 2), (3, 0)):
        rows = [Row(1 + d, d, 7 * (1 + d)) for d in range(5)]
        yield search(batch(rows, k=4, block_size=3, vocab_size=200, padding=2, seed=num_ids), num_ids, num_proposed)
