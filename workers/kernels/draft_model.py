"""A standalone draft model: the target's layers on caches of its own, and a chain that predicts from them.

Source: Leviathan et al., arXiv 2211.17192; vLLM's `draft_model` proposer for the tokens that are not shifted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from workers.kernels.arithmetic import (
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
from workers.kernels.arithmetic import attention as weighted
from workers.kernels.attention import attention
from workers.kernels.drafting import cached_sums, propose, scripted, write_scratch
from workers.kernels.kv_write import kv_write
from workers.kernels.recurrent_update import recurrent_update
from workers.kernels.signature import NO_DRAFT, PAD_SLOT, In, InOut, Out


def draft_model_pass(
    input_ids: In,
    positions: In,
    slots: In,
    token_row: In,
    token_index: In,
    block_table: In,
    num_computed: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    state_slot: In,
    accepted: In,
    drafter_hidden: Out,
    drafter_attended: Out,
    drafter_states: InOut,
    drafter_conv: InOut,
    drafter_kv: InOut,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    num_queries_max: int,
    num_speculative_tokens: int,
    conv_width: int,
) -> None:
    """Run the draft model over the tokens of the step, so that its caches catch up with the target's.

    Shapes: input_ids, positions, slots, token_row, drafter_hidden, drafter_attended [num_tokens]; block_table
    [num_rows * max_blocks]; the other row arguments [num_rows]; drafter_kv [num_blocks * block_size] uint64;
    drafter_states and drafter_conv as the states of `recurrent_update`, unused if `conv_width` is 0. `accepted` is
    the count of the step before. Tokens behind a row's last kept one (`token_index`) are rejected drafts: they have
    no place in the cache.
    """
    is_kept = (token_row >= 0) & (arange(len(token_row)) <= token_index.take(np.maximum(token_row, 0)))
    kept_slots = np.where(is_kept, slots, PAD_SLOT)
    kv_write(input_ids, positions, kept_slots, drafter_hidden, drafter_kv, 0)
    tables = (block_table, token_row, positions, drafter_hidden, drafter_attended)
    attention(drafter_kv, *tables, block_size, max_blocks, num_blocks_max)
    if conv_width:
        rows = (num_computed, query_start, num_scheduled, num_drafts, state_slot, accepted)
        sizes = (num_queries_max, num_speculative_tokens, conv_width)
        recurrent_update(drafter_hidden, *rows, drafter_states, drafter_conv, *sizes)


def draft_model_chain(
    next_tokens: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    accepted: In,
    state_slot: In,
    block_table: In,
    script: In,
    drafter_states: In,
    drafter_conv: In,
    drafter_kv: InOut,
    raw: Out,
    own: Out,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
    vocab_size: int,
    conv_width: int,
) -> None:
    """Predict `num_proposed` tokens for each row, one after the other, beginning with its next token.

    Shapes: positions [num_tokens]; next_tokens, token_index, num_scheduled, valid, accepted, state_slot [num_rows];
    block_table [num_rows * max_blocks]; script [num_state_slots * max_model_len]; the caches as in the pass; raw
    [num_rows * K] uint64, own and draft_tokens [num_rows * K]. `raw` is the model's last hidden word, `own` the
    argmax of its logits, lowest first. The draft is `own` plus what the script says at its position, modulo the
    vocabulary: 0 leaves it, 1 makes it wrong. The chain goes on from its drafts. A row without a valid token proposes
    NO_DRAFT. What the chain writes to the cache is scratch; it leaves the recurrent states alone. In
    padding rows `raw` is 0 and `own` NO_DRAFT.
    """
    wrong = scripted_behind(script, state_slot, positions, token_index, max_model_len, num_proposed)

    def choose(index: int, hidden: Words) -> tuple[Any, Any]:
        own = (mix(hidden[:, None] + vocabulary(vocab_size)) >> LOGIT_SHIFT).argmax(axis=1)
        return own, (own + wrong[:, index]) % vocab_size

    run_chain(
        choose, next_tokens, positions, token_index, num_scheduled, valid, accepted, state_slot, block_table,
        drafter_states, drafter_conv, drafter_kv, raw, own, draft_tokens,
        block_size, max_blocks, num_blocks_max, max_model_len, num_speculative_tokens, num_proposed, conv_width,
    )  # fmt: skip


def scripted_behind(
    script: In, state_slot: In, positions: In, token_index: In, max_model_len: int, count: int
) -> Integers:
    """Return what the script says of the drafts behind each row's next token, [num_rows, count]."""
    position = positions.take(token_index)[:, None] + 2 + arange(count)
    return scripted(script, state_slot, position, max_model_len)


def run_chain(
    choose: Callable[[int, Words], tuple[Any, Any]],
    next_tokens: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    accepted: In,
    state_slot: In,
    block_table: In,
    drafter_states: In,
    drafter_conv: In,
    drafter_kv: InOut,
    raw: Out,
    own: Out,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
    conv_width: int,
) -> None:
    """Run the model behind each row's next token; `choose` returns, of hidden words [num_rows], `own` and the draft.

    Shapes: as in `draft_model_chain`.
    """
    k, num_rows = num_speculative_tokens, len(token_index)
    raw_2d, own_2d, tokens_2d = (array.reshape(num_rows, k) for array in (raw, own, draft_tokens))
    raw_2d[:, num_proposed:] = 0
    own_2d[:, num_proposed:] = NO_DRAFT
    table = block_table.reshape(num_rows, max_blocks)
    last = positions.take(token_index)
    sums, sums_position = cached_sums(drafter_kv, table, last, block_size, num_blocks_max)
    position = last[:, None] + 1 + arange(num_proposed)
    stored = np.empty((num_rows, num_proposed), dtype=np.uint64)
    proposed = np.empty((num_rows, num_proposed), dtype=np.int64)
    if conv_width:
        slot, committed = np.maximum(state_slot, 0), np.clip(accepted, 0, 1 + k)
        state = drafter_states.reshape(-1, 2 + k)[slot, committed]
        conv = drafter_conv.reshape(-1, conv_width + k)
        window = conv[slot[:, None], committed[:, None] + arange(conv_width - 1)]
    token = next_tokens
    for index in range(num_proposed):
        at = position[:, index]
        hidden = embed(token)
        word = stored[:, index] = kv_words(hidden, at, 0)
        sums += word
        sums_position += word * words(at)
        hidden = mix(hidden + weighted(sums, sums_position, at))
        if conv_width:
            window = np.concatenate((window, hidden[:, None]), axis=1)
            weights = np.array(taps(conv_width), dtype=np.uint64)
            state = state * np.uint64(DECAY) + mix(np.add.reduce(window * weights, axis=1))
            window = window[:, 1:]
            hidden = mix(hidden + state)
        raw_2d[:, index] = hidden
        own_2d[:, index], token = choose(index, hidden)
        proposed[:, index] = token
    raw_2d[num_scheduled == 0], own_2d[num_scheduled == 0] = 0, NO_DRAFT
    propose(tokens_2d, proposed, valid)
    write_scratch(drafter_kv, stored, block_table, position, np.count_nonzero(num_scheduled), block_size, max_model_len)
