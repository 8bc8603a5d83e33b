"""The EAGLE-like drafter: a first pass over the target's tokens, then a chain of single tokens.

Source: EAGLE, arXiv 2401.15077, for the shape: hidden words of the target beside the token that follows.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import (
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
from workers.kernels.drafting.vectorised import cached_sums, propose, scripted
from workers.kernels.eagle.arguments import DraftChain, DraftFirstPass


def draft_first_pass(a: DraftFirstPass) -> None:
    """Write the drafter's cache for every token of the step, fed with the token that follows it."""
    following = np.empty_like(a.input_ids)
    following[:-1] = a.input_ids[1:]
    following[-1] = 0
    num_real = np.count_nonzero(a.num_scheduled)
    following[a.token_index[:num_real]] = a.next_tokens[:num_real]
    draft_hidden(a.hidden, following, a.drafter_hidden)
    stored = kv_words(a.drafter_hidden, a.positions, DRAFTER_LAYER)
    real = a.slots >= ZERO
    a.drafter_kv[a.slots[real]] = stored[real]


def draft_chain(a: DraftChain) -> None:
    """Propose `num_proposed` drafts for each row."""
    k, num_rows, num_real = a.num_speculative_tokens, len(a.token_index), np.count_nonzero(a.num_scheduled)
    raw_2d, tokens_2d = a.raw.reshape(num_rows, k), a.draft_tokens.reshape(num_rows, k)
    last = a.positions.take(a.token_index)
    position = (last.repeat(a.num_proposed) + tiled(a.num_proposed, num_rows)).reshape(num_rows, a.num_proposed)
    propose(tokens_2d, scripted(a.script, a.state_slot, position + integer(2), a.max_model_len), a.valid)
    sums, sums_position = cached_sums(
        a.drafter_kv, a.block_table.reshape(num_rows, a.max_blocks), last, a.block_size, a.num_blocks_max
    )
    attended, vector = attention(sums, sums_position, last), a.drafter_hidden.take(a.token_index)
    # By index, then by row.
    embedded = embed(tokens_2d.T[: a.num_proposed])
    places = kv_places(position.T, DRAFTER_LAYER)
    stored, vectors = np.empty((2, a.num_proposed, num_rows), dtype=np.uint64)
    for index in range(a.num_proposed):
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
    a.raw.fill(0)
    raw_2d[:num_real, : a.num_proposed] = vectors.T[:num_real]
    # The first pass has written the word of the first position.
    if a.num_proposed > 1:
        slots = a.draft_slots.reshape(num_rows, k)[:num_real, : a.num_proposed - 1].ravel()
        is_mapped = slots >= ZERO
        a.drafter_kv[slots[is_mapped]] = stored[1:].T[:num_real].ravel()[is_mapped]
