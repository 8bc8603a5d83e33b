"""A standalone draft model: the target's layers on caches of its own, and a chain that predicts from them.

Source: Leviathan et al., arXiv 2211.17192; vLLM's `draft_model` proposer for the tokens that are not shifted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    DECAY,
    LOGIT_SHIFT,
    Integers,
    Words,
    arange,
    embed,
    kv_words,
    mix,
    taps,
    vocabulary,
    words,
)
from workers.kernels.arithmetic.vectorised import attention as weighted
from workers.kernels.attention.vectorised import attention
from workers.kernels.draft_model.arguments import DraftModelChain, DraftModelPass, attention_of, recurrent_update_of
from workers.kernels.drafting.vectorised import cached_sums, propose, scripted, write_scratch
from workers.kernels.kv_write.arguments import KvWrite
from workers.kernels.kv_write.vectorised import kv_write
from workers.kernels.recurrent_update.vectorised import recurrent_update
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
    wrong = scripted_behind(a)

    def choose(index: int, hidden: Words) -> tuple[Any, Any]:
        own = (mix(hidden[:, None] + vocabulary(a.vocab_size)) >> LOGIT_SHIFT).argmax(axis=1)
        return own, (own + wrong[:, index]) % a.vocab_size

    run_chain(choose, a)


def scripted_behind(a: DraftModelChain) -> Integers:
    """Return what the script says of the drafts behind each row's next token, [num_rows, num_proposed]."""
    position = a.positions.take(a.token_index)[:, None] + 2 + arange(a.num_proposed)
    return scripted(a.script, a.state_slot, position, a.max_model_len)


def run_chain(choose: Callable[[int, Words], tuple[Any, Any]], a: DraftModelChain) -> None:
    """Run the model behind each row's next token; `choose` returns, of hidden words [num_rows], `own` and the draft."""
    k, num_rows = a.num_speculative_tokens, len(a.token_index)
    raw_2d, own_2d, tokens_2d = (array.reshape(num_rows, k) for array in (a.raw, a.own, a.draft_tokens))
    raw_2d[:, a.num_proposed :] = 0
    own_2d[:, a.num_proposed :] = NO_DRAFT
    table = a.block_table.reshape(num_rows, a.max_blocks)
    last = a.positions.take(a.token_index)
    sums, sums_position = cached_sums(a.drafter_kv, table, last, a.block_size, a.num_blocks_max)
    position = last[:, None] + 1 + arange(a.num_proposed)
    stored = np.empty((num_rows, a.num_proposed), dtype=np.uint64)
    proposed = np.empty((num_rows, a.num_proposed), dtype=np.int64)
    if a.conv_width:
        slot, committed = np.maximum(a.state_slot, 0), np.clip(a.accepted, 0, 1 + k)
        state = a.drafter_states.reshape(-1, 2 + k)[slot, committed]
        conv = a.drafter_conv.reshape(-1, a.conv_width + k)
        window = conv[slot[:, None], committed[:, None] + arange(a.conv_width - 1)]
    token = a.next_tokens
    for index in range(a.num_proposed):
        at = position[:, index]
        hidden = embed(token)
        word = stored[:, index] = kv_words(hidden, at, 0)
        sums += word
        sums_position += word * words(at)
        hidden = mix(hidden + weighted(sums, sums_position, at))
        if a.conv_width:
            window = np.concatenate((window, hidden[:, None]), axis=1)
            weights = np.array(taps(a.conv_width), dtype=np.uint64)
            state = state * np.uint64(DECAY) + mix(np.add.reduce(window * weights, axis=1))
            window = window[:, 1:]
            hidden = mix(hidden + state)
        raw_2d[:, index] = hidden
        own_2d[:, index], token = choose(index, hidden)
        proposed[:, index] = token
    raw_2d[a.num_scheduled == 0], own_2d[a.num_scheduled == 0] = 0, NO_DRAFT
    propose(tokens_2d, proposed, a.valid)
    write_scratch(
        a.drafter_kv, stored, a.block_table, position, np.count_nonzero(a.num_scheduled), a.block_size, a.max_model_len
    )
