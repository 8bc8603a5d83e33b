"""A standalone draft model: the target's layers on caches of its own, and a chain that predicts from them.

Source: Leviathan et al., arXiv 2211.17192; vLLM's `draft_model` proposer for the tokens that are not shifted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from workers.kernels.arithmetic.definition import DECAY
from workers.kernels.arithmetic.vectorised import (
    PLACE_STEP,
    ZERO,
    Integers,
    Words,
    arange,
    embed,
    integer,
    kv_places,
    mix,
    scores,
    taps,
    word,
)
from workers.kernels.attention.vectorised import attention
from workers.kernels.draft_model.arguments import DraftModelChain, DraftModelPass, attention_of, recurrent_update_of
from workers.kernels.drafting.vectorised import cached_sums, propose, scripted, see, write_raw, write_scratch
from workers.kernels.kv_write.arguments import KvWrite
from workers.kernels.kv_write.vectorised import kv_write
from workers.kernels.recurrent_update.vectorised import read_committed, recurrent_update
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def draft_model_pass(a: DraftModelPass) -> None:
    """Run the draft model over the tokens of the step, so that its caches catch up with the target's."""
    is_kept = (a.token_row >= 0) & (arange(len(a.token_row)) <= a.token_index.take(np.maximum(a.token_row, 0)))
    kept_slots = np.where(is_kept, a.slots, PAD_SLOT)
    kv_write(KvWrite(a.input_ids, a.positions, kept_slots, a.drafter_hidden, a.drafter_kv, 0))
    attention(attention_of(a))
    if a.conv_width:
        recurrent_update(recurrent_update_of(a))


def draft_model_chain(a: DraftModelChain) -> None:
    """Predict `num_proposed` tokens for each row, one after the other, beginning with its next token."""
    last = a.positions[a.token_index]
    wrong = scripted(a, last)

    def choose(index: int, hidden: Words) -> tuple[Any, Any]:
        own = scores(hidden, a.vocab_size).argmax(axis=1)
        return own, (own + wrong[:, index]) % integer(a.vocab_size)

    run_chain(choose, a, last)


def run_chain(choose: Callable[[int, Words], tuple[Any, Any]], a: DraftModelChain, last: Integers) -> None:
    """Run the model behind each row's next token; `choose` returns, of hidden words [num_rows], `own` and the draft.

    The next token of a row is the one behind position `last`, [num_rows].
    """
    k, num_rows, num_real = a.num_speculative_tokens, len(a.token_index), np.count_nonzero(a.num_scheduled)
    shape, width = (a.num_proposed, num_rows), a.conv_width
    seen, sums = cached_sums(a, last)
    # By index, then by row.
    raws, stored = np.empty(shape, np.uint64), np.empty(shape, np.uint64)
    own, proposed = np.empty(shape, np.int64), np.empty(shape, np.int64)
    if width:
        history, state = np.empty((width - 1 + a.num_proposed, num_rows), np.uint64), np.empty(num_rows, np.uint64)
        committed = np.maximum(a.state_slot, ZERO) * integer(2 + k)
        committed += arange(2 + k).take(a.accepted, mode="clip")
        read_committed(a.drafter_states, a.drafter_conv, committed, 2 + k, width + k, state, history[: width - 1])
    place, token = kv_places(last, 0), a.next_tokens
    for index in range(a.num_proposed):
        hidden = embed(token)
        place += PLACE_STEP
        see(seen, sums, mix(np.add(hidden, place, stored[index])))
        hidden += seen
        mix(hidden)
        if width:
            history[width - 1 + index] = hidden
            state *= word(DECAY)
            state += mix(taps(width).dot(history[index : index + width]))
            hidden += state
            mix(hidden)
        raws[index] = hidden
        own[index], token = choose(index, hidden)
        proposed[index] = token
    write_raw(a, raws, num_real)
    a.own.fill(NO_DRAFT)
    a.own.reshape(num_rows, k)[:num_real, : a.num_proposed] = own.T[:num_real]
    propose(a.draft_tokens.reshape(num_rows, k), proposed.T, a.valid)
    write_scratch(a, stored, last, num_real)
