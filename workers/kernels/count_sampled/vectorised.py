"""Count what a step sampled, and find where its rows go on: one op for everything between sampling and drafting."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, Integers, arange, integer, multiples, shared, word, words
from workers.kernels.count_sampled.arguments import CountSampled


def count_sampled(a: CountSampled) -> None:
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token."""
    num_real = np.count_nonzero(a.state_slot >= ZERO)
    # As unsigned words NO_TOKEN is past every vocabulary.
    is_valid = words(a.sampled) < word(a.vocab_size)
    is_valid.reshape(-1, a.width).dot(_ones(a.width), a.accepted)
    a.slot_accepted[a.state_slot[:num_real]] = a.accepted[:num_real]
    (discarded,) = (a.discard > ZERO).nonzero()
    a.valid[:] = a.accepted
    a.valid[discarded] = ZERO

    first = a.query_start + a.num_scheduled
    first -= a.num_drafts
    first -= integer(1)
    first[a.num_scheduled == ZERO] = ZERO
    column = _last_columns(a.width)[a.accepted]
    np.add(first, column, a.token_index)
    column += multiples(len(column), a.width)
    a.sampled.take(column, out=a.next_tokens, mode="clip")
    (none,) = (a.accepted == ZERO).nonzero()
    a.next_tokens[none] = a.input_ids[first[none]]
    a.next_tokens[discarded] = a.backup[discarded]


@cache
def _last_columns(width: int) -> Integers:
    """Return for each number of columns up to `width` the last of them, the first of none."""
    return shared(np.maximum(arange(1 + width) - 1, 0))


@cache
def _ones(count: int) -> Integers:
    """Return 1, `count` times."""
    return shared(np.ones(count, dtype=np.int64))
