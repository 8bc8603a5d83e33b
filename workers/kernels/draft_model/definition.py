"""Standalone draft model: the target's layers with a KV cache of their own.

Source: Leviathan et al., arXiv 2211.17192; vLLM's `draft_model` proposer for tokens that are not shifted by one.
"""

from collections.abc import Callable
from typing import Annotated, TypeAlias

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import advance, after_attention, after_recurrent, embed, kv_entry, logit
from workers.kernels.attention.definition import Attention, attention
from workers.kernels.drafting.definition import (
    attention_output,
    cached_entries,
    cleared_rows,
    script_entry,
    write_scratch,
)
from workers.kernels.drafting.shared_arguments import CachedDrafts
from workers.kernels.kv_write.definition import KvWrite, kv_write
from workers.kernels.recurrent_update.definition import RecurrentUpdate, recurrent_update
from workers.kernels.sentinels import NO_DRAFT, PAD_ROW, PAD_SLOT


@arguments
class DraftModelPass(Arguments):
    """Run the draft model over the step's tokens, so that its KV cache includes them.

    `accepted` is the accepted count of the previous step. Tokens after a row's last kept token (`token_index`) are
    rejected draft tokens and get no slot in the cache.
    """

    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    token_row: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    num_computed: Annotated[Memory, In("int64", "B")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B", of=("accepted_read", "accepted_host"))]
    drafter_hidden: Annotated[Memory, Out("uint64", "T")]
    drafter_attended: Annotated[Memory, Out("uint64", "T")]
    drafter_states: Annotated[Memory, InOut("uint64", "num_state_slots * (2 + K)")]
    drafter_conv: Annotated[Memory, InOut("uint64", "num_state_slots * (W + K)")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    block_size: int
    max_blocks: int
    num_blocks_max: int
    num_queries_max: int
    num_speculative_tokens: int
    conv_width: int


@arguments
class DraftModelChain(CachedDrafts):
    """Predict `num_proposed` tokens per row, one at a time, after its next token.

    `raw` is the model's last hidden state, `own` the argmax of its logits (the lowest id of equal ones). The draft
    token is `own` plus the script's entry at its position, modulo the vocabulary size: 0 keeps it, 1 makes it wrong.
    The chain continues from its draft tokens. A row without a valid token proposes NO_DRAFT. KV entries that the chain
    writes are scratch; recurrent states stay unchanged. In padding rows `raw` is 0 and `own` NO_DRAFT.
    """

    next_tokens: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    drafter_states: Annotated[Memory, In("uint64", "num_state_slots * (2 + K)")]
    drafter_conv: Annotated[Memory, In("uint64", "num_state_slots * (W + K)")]
    own: Annotated[Memory, Out("int64", "B * K")]
    vocab_size: int
    conv_width: int


def attention_of(a: DraftModelPass) -> Attention:
    """Return the arguments of the pass's attention layer."""
    return Attention(
        kv=a.drafter_kv,
        block_table=a.block_table,
        token_row=a.token_row,
        positions=a.positions,
        hidden=a.drafter_hidden,
        output=a.drafter_attended,
        block_size=a.block_size,
        max_blocks=a.max_blocks,
        num_blocks_max=a.num_blocks_max,
    )


def recurrent_update_of(a: DraftModelPass) -> RecurrentUpdate:
    """Return the arguments of the pass's recurrent layer."""
    return RecurrentUpdate(
        hidden=a.drafter_hidden,
        num_computed=a.num_computed,
        query_start=a.query_start,
        num_scheduled=a.num_scheduled,
        num_drafts=a.num_drafts,
        state_slot=a.state_slot,
        accepted=a.accepted,
        states=a.drafter_states,
        conv=a.drafter_conv,
        num_queries_max=a.num_queries_max,
        num_speculative_tokens=a.num_speculative_tokens,
        conv_width=a.conv_width,
    )


# Maps a row, a draft index, a hidden state and a script entry to the model's own token and the draft token.
Predict: TypeAlias = Callable[[int, int, int, int], tuple[int, int]]


def draft_model_pass(a: DraftModelPass) -> None:
    """Run the draft model over the step's tokens, so that its KV cache includes them."""
    kept_slots = np.array(a.slots)
    for token in range(len(a.input_ids)):
        if a.token_row[token] == PAD_ROW or token > a.token_index[a.token_row[token]]:
            kept_slots[token] = PAD_SLOT
    kv_write(KvWrite(a.input_ids, a.positions, kept_slots, a.drafter_hidden, a.drafter_kv, 0))
    attention(attention_of(a))
    if a.conv_width:
        recurrent_update(recurrent_update_of(a))


def draft_model_chain(a: DraftModelChain) -> None:
    """Predict `num_proposed` tokens per row, one at a time, after its next token."""

    def predict(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        own = likeliest(hidden, a.vocab_size)
        return own, (own + wrong) % a.vocab_size

    run_chain(a, predict)


def likeliest(hidden: int, vocab_size: int) -> int:
    """Return the token with the largest logit; on a tie the lowest id."""
    best = 0
    for token in range(vocab_size):
        if logit(hidden, token) > logit(hidden, best):
            best = token
    return best


def run_chain(a: DraftModelChain, predict: Predict) -> None:
    """Run the draft model from each row's next token on; `predict` chooses each draft token."""
    for index in range(len(a.own)):
        a.own[index] = NO_DRAFT
    for row in cleared_rows(a):
        _run_row(a, row, predict)


def _run_row(a: DraftModelChain, row: int, predict: Predict) -> None:
    """Run the draft model on a row's next token, then on its own draft tokens."""
    k, width = a.num_speculative_tokens, a.conv_width
    position, token = int(a.positions[a.token_index[row]]), int(a.next_tokens[row])
    cached = cached_entries(a, row, position)
    state, window = 0, []
    if width:
        accepted = min(max(int(a.accepted[row]), 0), 1 + k)
        slot = int(a.state_slot[row])
        state = int(a.drafter_states[slot * (2 + k) + accepted])
        for at in range(width - 1):
            window.append(int(a.drafter_conv[slot * (width + k) + accepted + at]))
    for index in range(a.num_proposed):
        position += 1
        hidden = embed(token)
        cached.append(kv_entry(hidden, position, 0))
        write_scratch(a, row, cached[-1], position)
        hidden = after_attention(hidden, attention_output(cached, position))
        if width:
            window = [*window, hidden][-width:]
            state = advance(state, window)
            hidden = after_recurrent(hidden, state)
        own, token = predict(row, index, hidden, script_entry(a, row, position + 1))
        a.raw[row * k + index] = hidden
        a.own[row * k + index] = own
        if a.valid[row] > 0:
            a.draft_tokens[row * k + index] = token
