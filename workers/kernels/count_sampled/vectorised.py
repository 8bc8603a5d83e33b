"""Count what a step sampled, and find where its rows go on: one op for everything between sampling and drafting."""

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, integer, multiples, word, words
from workers.kernels.count_sampled.arguments import CountSampled


def count_sampled(a: CountSampled) -> None:
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token."""
    # As unsigned words NO_TOKEN is past every vocabulary.
    is_valid = words(a.sampled) < word(a.vocab_size)
    np.add.reduce(is_valid.reshape(-1, a.width), axis=1, dtype=np.int64, out=a.accepted)
    is_discarded, num_real = a.discard > ZERO, np.count_nonzero(a.state_slot >= ZERO)
    a.slot_accepted[a.state_slot[:num_real]] = a.accepted[:num_real]
    a.valid[:] = a.accepted
    np.copyto(a.valid, ZERO, where=is_discarded)

    last_column = np.maximum(a.accepted - integer(1), ZERO)
    last = a.sampled.take(multiples(len(a.accepted), a.width) + last_column)
    first = a.query_start + a.num_scheduled
    first -= a.num_drafts
    first -= integer(1)
    np.copyto(first, ZERO, where=a.num_scheduled == ZERO)
    a.next_tokens[:] = a.input_ids.take(first)
    np.copyto(a.next_tokens, last, where=a.accepted > ZERO)
    np.copyto(a.next_tokens, a.backup, where=is_discarded)
    np.add(first, last_column, out=a.token_index)
