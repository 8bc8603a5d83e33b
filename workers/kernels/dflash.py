"""A block drafter: all drafts of a row come out of one pass over masked positions that see each other.

Source: DFlash, arXiv 2602.06036, for the block behind a context of the target's hidden words.
"""

import numpy as np

from workers.kernels.arithmetic import (
    DRAFTER_LAYER,
    Words,
    arange,
    column,
    draft_hidden,
    kv_words,
    mix,
    words,
)
from workers.kernels.arithmetic import attention as weighted
from workers.kernels.drafting import cached_sums, propose, scripted, write_scratch
from workers.kernels.signature import In, InOut, Out


def dflash_context(hidden: In, positions: In, slots: In, drafter_kv: InOut) -> None:
    """Write the context of the drafter: what it stores for the target's hidden word of every token that has a slot.

    Shapes: hidden, positions, slots [num_tokens]; drafter_kv [num_blocks * block_size] uint64.
    """
    stored = kv_words(hidden, positions, DRAFTER_LAYER)
    real = slots >= 0
    drafter_kv[slots[real]] = stored[real]


def dflash_block(
    hidden: In,
    next_tokens: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    state_slot: In,
    block_table: In,
    script: In,
    drafter_kv: InOut,
    raw: Out,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
    vocab_size: int,
) -> None:
    """Propose `num_proposed` drafts for each row at once, from the hidden word of its last kept token.

    Shapes: hidden, positions [num_tokens]; next_tokens, token_index, num_scheduled, valid, state_slot [num_rows];
    block_table [num_rows * max_blocks]; script [num_state_slots * max_model_len]; drafter_kv as in the context; raw
    [num_rows * K] uint64 and draft_tokens [num_rows * K]. The block is the next token and `num_proposed` masks (id
    `vocab_size`) at the positions behind the context; each sees the whole context, and all of the block with weight
    2 |distance| + 1. `raw` is what comes out at a mask, the draft is the script's. A row without a valid token
    proposes NO_DRAFT. The block's cache words are scratch. In padding rows `raw` is 0.
    """
    k, num_rows, width = num_speculative_tokens, len(token_index), 1 + num_proposed
    raw_2d, table = raw.reshape(num_rows, k), block_table.reshape(num_rows, max_blocks)
    raw_2d[:, num_proposed:] = 0
    last = positions.take(token_index)
    sums, sums_position = cached_sums(drafter_kv, table, last, block_size, num_blocks_max)
    position = last[:, None] + 1 + arange(width)
    ids = np.full((num_rows, width), vocab_size, dtype=np.int64)
    ids[:, 0] = next_tokens
    vectors = draft_hidden(np.repeat(hidden.take(token_index), width).reshape(num_rows, width), ids)
    stored = kv_words(vectors, position, DRAFTER_LAYER)
    seen = weighted(sums[:, None], sums_position[:, None], position[:, 1:])
    for index in range(width):
        seen += stored[:, index : index + 1] * block_weights(width)[index, 1:]
    raw_2d[:, :num_proposed] = mix(vectors[:, 1:] + seen)
    raw_2d[num_scheduled == 0] = 0
    proposed = scripted(script, state_slot, position[:, 1:], max_model_len)
    propose(draft_tokens.reshape(num_rows, k), proposed, valid)
    write_scratch(drafter_kv, stored, block_table, position, np.count_nonzero(num_scheduled), block_size, max_model_len)


def block_weights(width: int) -> Words:
    """Return the weight 2 |i - j| + 1 of each place of a block for each other."""
    return words(2 * np.abs(arange(width) - column(width)) + 1)
