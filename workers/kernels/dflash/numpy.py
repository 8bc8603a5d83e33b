"""A block drafter: all drafts of a row come out of one pass over masked positions that see each other."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.numpy import (
    DRAFTER_LAYER,
    Words,
    arange,
    column,
    draft_hidden,
    kv_words,
    mix,
    repeated,
    shared,
    store,
    tiled,
    words,
)
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.drafting.numpy import cached_sums, scripted, withhold, write_raw, write_scratch


def dflash_context(a: DflashContext) -> None:
    store(a.drafter_kv, a.slots, kv_words(a.hidden, a.positions, DRAFTER_LAYER))


def dflash_block(a: DflashBlock) -> None:
    num_rows, width, num_real = len(a.token_index), 1 + a.num_proposed, np.count_nonzero(a.num_scheduled)
    last = a.positions[a.token_index]
    # By place, then by row: the next token and the masks behind it.
    row = tiled(num_rows, width)
    ids = np.full((width, num_rows), a.vocab_size, dtype=np.int64)
    ids[0] = a.next_tokens
    vectors = draft_hidden(a.hidden[a.token_index[row]], ids.ravel())
    position = last[row]
    position += repeated(1 + width, num_rows)[num_rows:]
    stored = kv_words(vectors, position, DRAFTER_LAYER).reshape(width, num_rows)
    seen = block_weights(width).dot(stored)
    seen += context_weights(width).dot(np.stack(cached_sums(a, last)))
    seen += vectors.reshape(stored.shape)
    write_raw(a, mix(seen)[1:], num_real)
    tokens = a.draft_tokens.reshape(num_rows, a.num_speculative_tokens)
    scripted(a, last, tokens)
    withhold(tokens, a.num_proposed, a.valid)
    write_scratch(a, stored, last, num_real)


@cache
def block_weights(width: int) -> Words:
    """Return the weight 2 |i - j| + 1 of each place of a block for each other."""
    return shared(words(2 * np.abs(arange(width) - column(width)) + 1))


@cache
def context_weights(width: int) -> Words:
    """Return each place's factors of the attention at the position before the block, and of the sum of words.

    With each position every weight grows by 2: that sum is added twice for each.
    """
    return shared(words(np.stack((arange(width) * 0 + 1, 2 * arange(width) + 2), axis=1)))
