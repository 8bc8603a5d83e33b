"""A block drafter: all drafts of a row come out of one pass over masked positions that see each other.

Source: DFlash, arXiv 2602.06036, for the block behind a context of the target's hidden words.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    DRAFTER_LAYER,
    Words,
    arange,
    column,
    draft_hidden,
    kv_words,
    mix,
    words,
)
from workers.kernels.arithmetic.vectorised import attention as weighted
from workers.kernels.dflash.arguments import DflashBlock, DflashContext
from workers.kernels.drafting.vectorised import cached_sums, propose, scripted, write_scratch


def dflash_context(a: DflashContext) -> None:
    """Write the context of the drafter: what it stores for the target's hidden word of every token that has a slot."""
    stored = kv_words(a.hidden, a.positions, DRAFTER_LAYER)
    real = a.slots >= 0
    a.drafter_kv[a.slots[real]] = stored[real]


def dflash_block(a: DflashBlock) -> None:
    """Propose `num_proposed` drafts for each row at once, from the hidden word of its last kept token."""
    k, num_rows, width = a.num_speculative_tokens, len(a.token_index), 1 + a.num_proposed
    raw_2d, table = a.raw.reshape(num_rows, k), a.block_table.reshape(num_rows, a.max_blocks)
    raw_2d[:, a.num_proposed :] = 0
    last = a.positions.take(a.token_index)
    sums, sums_position = cached_sums(a.drafter_kv, table, last, a.block_size, a.num_blocks_max)
    position = last[:, None] + 1 + arange(width)
    ids = np.full((num_rows, width), a.vocab_size, dtype=np.int64)
    ids[:, 0] = a.next_tokens
    vectors = draft_hidden(np.repeat(a.hidden.take(a.token_index), width).reshape(num_rows, width), ids)
    stored = kv_words(vectors, position, DRAFTER_LAYER)
    seen = weighted(sums[:, None], sums_position[:, None], position[:, 1:])
    for index in range(width):
        seen += stored[:, index : index + 1] * block_weights(width)[index, 1:]
    raw_2d[:, : a.num_proposed] = mix(vectors[:, 1:] + seen)
    raw_2d[a.num_scheduled == 0] = 0
    proposed = scripted(a.script, a.state_slot, position[:, 1:], a.max_model_len)
    propose(a.draft_tokens.reshape(num_rows, k), proposed, a.valid)
    write_scratch(
        a.drafter_kv, stored, a.block_table, position, np.count_nonzero(a.num_scheduled), a.block_size, a.max_model_len
    )


def block_weights(width: int) -> Words:
    """Return the weight 2 |i - j| + 1 of each place of a block for each other."""
    return words(2 * np.abs(arange(width) - column(width)) + 1)
