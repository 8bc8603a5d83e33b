"""The EAGLE-like drafter: a first pass over the target's tokens, then a chain of single tokens.

Source: EAGLE, arXiv 2401.15077, for the shape: hidden words of the target beside the token that follows.
"""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    DRAFTER_LAYER,
    PLACE_STEP,
    THREE,
    Integers,
    arange,
    columns,
    draft_hidden,
    embed,
    kv_places,
    kv_words,
    mix,
    shared,
    store,
)
from workers.kernels.drafting.vectorised import cached_sums, scripted, see, withhold, write_raw
from workers.kernels.eagle.arguments import DraftChain, DraftFirstPass


def draft_first_pass(a: DraftFirstPass) -> None:
    """Write the drafter's cache for every token of the step, fed with the token that follows it."""
    fed = a.input_ids[_following(len(a.input_ids))]
    fed[-1] = 0
    num_real = np.count_nonzero(a.num_scheduled)
    fed[a.token_index[:num_real]] = a.next_tokens[:num_real]
    draft_hidden(a.hidden, fed, a.drafter_hidden)
    store(a.drafter_kv, a.slots, kv_words(a.drafter_hidden, a.positions, DRAFTER_LAYER))


def draft_chain(a: DraftChain) -> None:
    """Propose `num_proposed` drafts for each row."""
    k, num_rows, num_real = a.num_speculative_tokens, len(a.token_index), np.count_nonzero(a.num_scheduled)
    last, tokens = a.positions[a.token_index], a.draft_tokens.reshape(num_rows, k)
    scripted(a, last, tokens)
    withhold(tokens, a.num_proposed, a.valid)
    seen, sums = cached_sums(a, last)
    # By index, then by row.
    embedded, num_fed = embed(tokens.T), max(a.num_proposed - 1, 0)
    raws, stored = np.empty((a.num_proposed, num_rows), np.uint64), np.empty((num_fed, num_rows), np.uint64)
    vector, place = a.drafter_hidden[a.token_index], kv_places(last, DRAFTER_LAYER)
    for index in range(a.num_proposed):
        if index:
            vector = raws[index - 1] * THREE
            vector += embedded[index - 1]
            place += PLACE_STEP
            see(seen, sums, mix(np.add(mix(vector), place, stored[index - 1])))
        mix(np.add(vector, seen, raws[index]))
    write_raw(a, raws, num_real)
    # The first pass has written the word of the first position.
    slots = a.draft_slots[columns(num_rows, k, num_real, num_fed)]
    store(a.drafter_kv, slots, stored[:, :num_real].ravel())


@cache
def _following(count: int) -> Integers:
    """Return the index behind each of `count`, and the first one behind the last."""
    return shared(np.roll(arange(count), -1))
