"""Definition of the draft model's ops: the target's layers on its own caches, and a chain of single tokens."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from workers.kernels.arithmetic.definition import advance, after_attention, after_recurrent, embed, kv_word, logit
from workers.kernels.attention.definition import attention
from workers.kernels.draft_model.arguments import DraftModelChain, DraftModelPass, attention_of, recurrent_update_of
from workers.kernels.drafting.definition import attended, cached_words, scripted, write_scratch
from workers.kernels.kv_write.arguments import KvWrite
from workers.kernels.kv_write.definition import kv_write
from workers.kernels.recurrent_update.definition import recurrent_update
from workers.kernels.sentinels import NO_DRAFT, PAD_ROW, PAD_SLOT

# Maps a row, the index of a draft, a hidden word and a script's entry to the model's own token and the draft.
Predict: TypeAlias = Callable[[int, int, int, int], tuple[int, int]]


def draft_model_pass(a: DraftModelPass) -> None:
    """Run the draft model over the tokens of the step, so that its caches catch up with the target's."""
    kept_slots = np.array(a.slots)
    for token in range(len(a.input_ids)):
        if a.token_row[token] == PAD_ROW or token > a.token_index[a.token_row[token]]:
            kept_slots[token] = PAD_SLOT
    kv_write(
        KvWrite(
            input_ids=a.input_ids,
            positions=a.positions,
            slots=kept_slots,
            hidden=a.drafter_hidden,
            kv=a.drafter_kv,
            layer=0,
        )
    )
    attention(attention_of(a))
    if a.conv_width:
        recurrent_update(recurrent_update_of(a))


def draft_model_chain(a: DraftModelChain) -> None:
    """Predict `num_proposed` tokens for each row, one after the other, beginning with its next token."""

    def predict(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        own = likeliest(hidden, a.vocab_size)
        return own, (own + wrong) % a.vocab_size

    run_chain(a, predict)


def likeliest(hidden: int, vocab_size: int) -> int:
    """Return the token with the largest logit, the lowest of equal ones."""
    best = 0
    for token in range(vocab_size):
        if logit(hidden, token) > logit(hidden, best):
            best = token
    return best


def run_chain(a: DraftModelChain, predict: Predict) -> None:
    """Run the model behind each row's next token; `predict` chooses its drafts."""
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for column in range(k):
            a.raw[row * k + column] = 0
            a.own[row * k + column] = NO_DRAFT
            a.draft_tokens[row * k + column] = NO_DRAFT
        if a.num_scheduled[row] > 0:
            _run_row(a, row, predict)


def _run_row(a: DraftModelChain, row: int, predict: Predict) -> None:
    """Run the model on its own drafts, beginning with the caches behind the last kept token."""
    k, width = a.num_speculative_tokens, a.conv_width
    position, token = int(a.positions[a.token_index[row]]), int(a.next_tokens[row])
    cached = cached_words(a, row, position)
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
        cached.append(kv_word(hidden, position, 0))
        write_scratch(a, row, cached[-1], position)
        hidden = after_attention(hidden, attended(cached, position))
        if width:
            window = [*window, hidden][-width:]
            state = advance(state, window)
            hidden = after_recurrent(hidden, state)
        own, token = predict(row, index, hidden, scripted(a, row, position + 1))
        a.raw[row * k + index] = hidden
        a.own[row * k + index] = own
        if a.valid[row] > 0:
            a.draft_tokens[row * k + index] = token
