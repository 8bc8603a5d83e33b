"""EAGLE-like drafter: a pass over the target's tokens, then a chain of draft tokens."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.numpy import (
    DRAFTER_LAYER,
    PLACE_STEP,
    Integers,
    arange,
    draft_hidden,
    embed,
    kv_entries,
    kv_terms,
    mix_number,
    shared,
    store,
)
from workers.kernels.drafting.numpy import cached_sums, scripted_drafts, withhold
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass

_STEP = int(PLACE_STEP)


def draft_first_pass(a: DraftFirstPass) -> None:
    fed = a.input_ids[_following(len(a.input_ids))]
    fed[-1] = 0
    num_real = np.count_nonzero(a.num_scheduled)
    fed[a.token_index[:num_real]] = a.next_tokens[:num_real]
    draft_hidden(a.hidden, fed, a.drafter_hidden)
    store(a.drafter_kv, a.slots, kv_entries(a.drafter_hidden, a.positions, DRAFTER_LAYER))


def draft_chain(a: DraftChain) -> None:
    k, num_rows, num_real = a.num_speculative_tokens, len(a.token_index), np.count_nonzero(a.num_scheduled)
    last, tokens = a.positions[a.token_index], a.draft_tokens.reshape(num_rows, k)
    scripted_drafts(a, last, tokens)
    withhold(tokens, a.num_proposed, a.valid)
    seen, sums = cached_sums(a, last)
    a.raw.fill(0)
    if not a.num_proposed:
        return
    vectors, places = a.drafter_hidden[a.token_index], kv_terms(last, DRAFTER_LAYER)
    # The last draft is not fed back.
    fed, slots = embed(tokens)[:, : a.num_proposed - 1], a.draft_slots.reshape(num_rows, k)
    # Python numbers instead of arrays: a chain is sequential, and there are few rows.
    columns = (
        range(0, num_real * k, k),
        vectors.tolist(),
        seen.tolist(),
        sums.tolist(),
        places.tolist(),
        fed.tolist(),
        slots.tolist(),
    )
    for first, vector, seen_by_row, total, place, fed_back, slots_of_row in zip(*columns, strict=False):
        _chain(a, first, vector=vector, seen=seen_by_row, total=total, place=place, fed=fed_back, slots=slots_of_row)


def _chain(
    a: DraftChain, first: int, *, vector: int, seen: int, total: int, place: int, fed: list[int], slots: list[int]
) -> None:
    """Write a row's draft hidden states from index `first` on, and the drafts' KV entries.

    `vector` is the first pass's word of the last kept token, `seen` its attention output, `total` the sum of its KV
    words.
    """
    a.raw[first] = raw = mix_number(vector + seen)
    for at, (word, slot) in enumerate(zip(fed, slots, strict=False), first + 1):
        vector = mix_number(3 * raw + word)
        place += _STEP
        stored = mix_number(vector + place)
        # Every weight is 2 larger than at the previous position; the position's own weight is 1.
        seen += 2 * total + stored
        total += stored
        if slot >= 0:
            a.drafter_kv[slot] = stored
        a.raw[at] = raw = mix_number(vector + seen)


@cache
def _following(count: int) -> Integers:
    """Return 1, 2 ... count - 1, 0: for each index, the next one (cyclic)."""
    return shared(np.roll(arange(count), -1))
