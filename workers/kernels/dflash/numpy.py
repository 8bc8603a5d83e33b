"""Block drafter (DFlash): one pass over mask tokens gives all draft tokens of a row."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.numpy import (
    DRAFTER_LAYER,
    Words,
    arange,
    as_uint64,
    column,
    draft_hidden,
    kv_entries,
    mix,
    repeated,
    shared,
    store,
    tiled,
)
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.drafting.numpy import cached_sums, scripted_drafts, withhold, write_raw, write_scratch


def dflash_context(a: DflashContext) -> None:
    store(a.drafter_kv, a.slots, kv_entries(a.hidden, a.positions, DRAFTER_LAYER))


def dflash_block(a: DflashBlock) -> None:
    num_rows, width, num_real = len(a.token_index), 1 + a.num_proposed, np.count_nonzero(a.num_scheduled)
    last = a.positions[a.token_index]
    # Ordered by place in the block, then by row: the next token, then its mask tokens.
    row = tiled(num_rows, width)
    ids = np.full((width, num_rows), a.vocab_size, dtype=np.int64)
    ids[0] = a.next_tokens
    vectors = draft_hidden(a.hidden[a.token_index[row]], ids.ravel())
    position = last[row]
    position += repeated(1 + width, num_rows)[num_rows:]
    stored = kv_entries(vectors, position, DRAFTER_LAYER).reshape(width, num_rows)
    seen = block_weights(width).dot(stored)
    seen += context_weights(width).dot(np.stack(cached_sums(a, last)))
    seen += vectors.reshape(stored.shape)
    write_raw(a, mix(seen)[1:], num_real)
    tokens = a.draft_tokens.reshape(num_rows, a.num_speculative_tokens)
    scripted_drafts(a, last, tokens)
    withhold(tokens, a.num_proposed, a.valid)
    write_scratch(a, stored, last, num_real)


@cache
def block_weights(width: int) -> Words:
    """Return the attention weights 2 |i - j| + 1 between positions i and j of a block."""
    return shared(as_uint64(2 * np.abs(arange(width) - column(width)) + 1))


@cache
def context_weights(width: int) -> Words:
    """Return the factors by which the context's attention output and KV sum enter each position.

    The attention output is taken at the position before the block. Every weight grows by 2 with each position, which
    adds that sum twice per position.
    """
    return shared(as_uint64(np.stack((arange(width) * 0 + 1, 2 * arange(width) + 2), axis=1)))
