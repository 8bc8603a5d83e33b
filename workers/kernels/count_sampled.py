"""Count what a step sampled, and find where its rows go on: one op for everything between sampling and drafting."""

import numpy as np

from workers.kernels.arithmetic import ZERO, integer, multiples, word, words
from workers.kernels.signature import In, InOut, Out


def count_sampled(
    sampled: In,
    discard: In,
    backup: In,
    input_ids: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    state_slot: In,
    slot_accepted: InOut,
    accepted: Out,
    valid: Out,
    next_tokens: Out,
    token_index: Out,
    width: int,
    vocab_size: int,
) -> None:
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token.

    Shapes: sampled [num_rows * width]; input_ids [num_tokens]; slot_accepted [num_state_slots]; the others [num_rows].
    Valid tokens are a contiguous prefix, so their number is the accepted count. A discarded row (a prefill chunk that
    is not the last, without drafts) counts the one column it sampled, which is neutral, but has no valid token: it goes
    on from its backup token, the last token the host knows. A row that sampled nothing valid goes on from the token it
    was to verify first, once more.
    `token_index` is the flat index of each row's last kept token; a row that keeps none of its verified tokens points
    at the first of them, and its drafts are not used. Padding rows come last, store nothing and point at index 0.
    Source: vLLM PRs #38372, #38556 and #41043.
    """
    # As unsigned words NO_TOKEN is past every vocabulary.
    is_valid = words(sampled) < word(vocab_size)
    np.add.reduce(is_valid.reshape(-1, width), axis=1, dtype=np.int64, out=accepted)
    is_discarded, num_real = discard > ZERO, np.count_nonzero(state_slot >= ZERO)
    slot_accepted[state_slot[:num_real]] = accepted[:num_real]
    valid[:] = accepted
    np.copyto(valid, ZERO, where=is_discarded)

    last_column = np.maximum(accepted - integer(1), ZERO)
    last = sampled.take(multiples(len(accepted), width) + last_column)
    first = query_start + num_scheduled
    first -= num_drafts
    first -= integer(1)
    np.copyto(first, ZERO, where=num_scheduled == ZERO)
    next_tokens[:] = input_ids.take(first)
    np.copyto(next_tokens, last, where=accepted > ZERO)
    np.copyto(next_tokens, backup, where=is_discarded)
    np.add(first, last_column, out=token_index)
