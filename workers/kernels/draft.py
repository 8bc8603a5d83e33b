"""The EAGLE-like drafter: a first pass over the target's tokens, then a chain of single tokens.

Source: EAGLE, arXiv 2401.15077, for the shape: hidden words of the target beside the token that follows.
"""

import numpy as np

from workers.kernels.arithmetic import (
    DRAFTER_LAYER,
    THREE,
    ZERO,
    attention,
    draft_hidden,
    embed,
    integer,
    kv_places,
    kv_words,
    mix,
    tiled,
)
from workers.kernels.drafting import cached_sums, propose, scripted, write_scratch
from workers.kernels.signature import In, InOut, Out


def draft_first_pass(
    hidden: In,
    input_ids: In,
    positions: In,
    slots: In,
    token_index: In,
    next_tokens: In,
    num_scheduled: In,
    drafter_hidden: Out,
    drafter_kv: InOut,
) -> None:
    """Write the drafter's cache for every token of the step, fed with the token that follows it.

    Shapes: hidden, input_ids, positions, slots, drafter_hidden [num_tokens]; token_index, next_tokens, num_scheduled
    [num_rows]; drafter_kv [num_blocks * block_size] uint64. The token after a row's last kept one is its next token;
    what is written for rejected tokens is scratch. Padding rows come last.
    """
    following = np.empty_like(input_ids)
    following[:-1] = input_ids[1:]
    following[-1] = 0
    num_real = np.count_nonzero(num_scheduled)
    following[token_index[:num_real]] = next_tokens[:num_real]
    draft_hidden(hidden, following, drafter_hidden)
    stored = kv_words(drafter_hidden, positions, DRAFTER_LAYER)
    real = slots >= ZERO
    drafter_kv[slots[real]] = stored[real]


def draft_chain(
    drafter_hidden: In,
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
) -> None:
    """Propose `num_proposed` drafts for each row.

    Shapes: drafter_hidden, positions [num_tokens]; token_index, num_scheduled, valid, state_slot [num_rows];
    block_table [num_rows * max_blocks]; script [num_state_slots * script_length]; drafter_kv as in the first pass;
    raw [num_rows * K] uint64 and draft_tokens [num_rows * K]. The drafter attends over its own cache; the word it
    computes is `raw`, the token it proposes is the script's at that position. A row without a valid token proposes
    NO_DRAFT, as do columns from `num_proposed` on. What the chain writes to the cache is scratch. Padding rows come
    last; their `raw` is 0.
    """
    k, num_rows, num_real = num_speculative_tokens, len(token_index), np.count_nonzero(num_scheduled)
    raw_2d, tokens_2d = raw.reshape(num_rows, k), draft_tokens.reshape(num_rows, k)
    last = positions.take(token_index)
    position = (last.repeat(num_proposed) + tiled(num_proposed, num_rows)).reshape(num_rows, num_proposed)
    propose(tokens_2d, scripted(script, state_slot, position + integer(2), max_model_len), valid)
    sums, sums_position = cached_sums(
        drafter_kv, block_table.reshape(num_rows, max_blocks), last, block_size, num_blocks_max
    )
    attended, vector = attention(sums, sums_position, last), drafter_hidden.take(token_index)
    # By index, then by row.
    embedded = embed(tokens_2d.T[:num_proposed])
    places = kv_places(position.T, DRAFTER_LAYER)
    stored, vectors = np.empty((2, num_proposed, num_rows), dtype=np.uint64)
    for index in range(num_proposed):
        if index:
            vector *= THREE
            vector += embedded[index - 1]
            written = np.add(mix(vector), places[index], out=stored[index])
            # One position on, every weight is larger by 2, and that of the position itself is 1.
            attended += sums
            sums += mix(written)
            attended += sums
        vector += attended
        vectors[index] = mix(vector)
    raw.fill(0)
    raw_2d[:num_real, :num_proposed] = vectors.T[:num_real]
    # The first pass has written the word of the first position.
    if num_proposed > 1:
        chain, behind = stored[1:].T, position[:, 1:]
        write_scratch(drafter_kv, chain, block_table, behind, num_real, block_size, max_model_len)
