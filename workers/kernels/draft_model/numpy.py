"""Standalone draft model: the target's layers with a KV cache of their own."""

from collections.abc import Callable
from operator import mul

import numpy as np

from workers.kernels.arithmetic.definition import DECAY, POSITION, WORDS
from workers.kernels.arithmetic.numpy import arange, embed, embeddings, mix_number, scores_of, window_weights
from workers.kernels.attention.numpy import attention
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass, attention_of, recurrent_update_of
from workers.kernels.drafting.numpy import cached_sums, scripted_drafts
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.numpy import kv_write
from workers.kernels.recurrent_update.numpy import recurrent_update
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT

# Maps a row, a draft index, the model's hidden state and the script entry to the model's own token and the draft token.
Choose = Callable[[int, int, int, int], tuple[int, int]]


def draft_model_pass(a: DraftModelPass) -> None:
    is_kept = (a.token_row >= 0) & (arange(len(a.token_row)) <= a.token_index.take(np.maximum(a.token_row, 0)))
    kept_slots = np.where(is_kept, a.slots, PAD_SLOT)
    kv_write(KvWrite(a.input_ids, a.positions, kept_slots, a.drafter_hidden, a.drafter_kv, 0))
    attention(attention_of(a))
    if a.conv_width:
        recurrent_update(recurrent_update_of(a))


def draft_model_chain(a: DraftModelChain) -> None:

    def choose(row: int, index: int, hidden: int, wrong: int) -> tuple[int, int]:
        own = int(scores_of(hidden, a.vocab_size).argmax())
        return own, (own + wrong) % a.vocab_size

    run_chain(a, choose)


def run_chain(a: DraftModelChain, choose: Choose) -> None:
    """Run the draft model from each row's next token on; `choose` chooses the draft tokens."""
    a.raw.fill(0)
    a.own.fill(NO_DRAFT)
    a.draft_tokens.fill(NO_DRAFT)
    if not a.num_proposed:
        return
    last = a.positions[a.token_index]
    seen, sums = cached_sums(a, last)
    # Python numbers instead of arrays: a chain is sequential, and a step has few rows.
    rows = zip(
        a.num_scheduled.tolist(),
        last.tolist(),
        embed(a.next_tokens).tolist(),
        seen.tolist(),
        sums.tolist(),
        scripted_drafts(a, last).tolist(),
        strict=True,
    )
    for row, (num_scheduled, last_of_row, hidden, seen_by_last, sum_of_row, wrong) in enumerate(rows):
        if num_scheduled:
            _run_row(a, row, choose, last=last_of_row, hidden=hidden, seen=seen_by_last, sums=sum_of_row, wrong=wrong)


def _run_row(
    a: DraftModelChain, row: int, choose: Choose, *, last: int, hidden: int, seen: int, sums: int, wrong: list[int]
) -> None:
    """Run the draft model on its own draft tokens; `hidden` is the next token's hidden state.

    The next token follows position `last`. `seen` is the attention output at `last` over the row's KV entries, `sums`
    the sum of these words.
    """
    k, width = a.num_speculative_tokens, a.conv_width
    raws: list[int] = []
    own: list[int] = []
    drafts: list[int] = []
    if width:
        accepted, slot = min(max(int(a.accepted[row]), 0), 1 + k), int(a.state_slot[row])
        state = int(a.drafter_states[slot * (2 + k) + accepted])
        first = slot * (width + k) + accepted
        window, weights = a.drafter_conv[first : first + width - 1].tolist(), window_weights(width).tolist()
    for index in range(a.num_proposed):
        position = last + 1 + index
        stored = mix_number(hidden + (2 * position + 1) * POSITION)
        _write_scratch(a, row, position, stored)
        # Every weight is 2 larger than at the previous position; the position's own weight is 1.
        seen += 2 * sums + stored
        sums += stored
        hidden = mix_number(hidden + seen)
        if width:
            window.append(hidden)
            state = (state * DECAY + mix_number(sum(map(mul, weights, window[index:])))) % WORDS
            hidden = mix_number(hidden + state)
        raws.append(hidden)
        token, draft = choose(row, index, hidden, wrong[index])
        own.append(token)
        drafts.append(draft)
        hidden = int(embeddings()[draft])
    a.raw[row * k : row * k + len(raws)] = raws
    a.own[row * k : row * k + len(own)] = own
    if a.valid[row] > 0:
        a.draft_tokens[row * k : row * k + len(drafts)] = drafts


def _write_scratch(a: DraftModelChain, row: int, position: int, word: int) -> None:
    """Write the KV entry of a draft token, if its position has a slot."""
    if position < a.max_model_len:
        entry, offset = divmod(position, a.block_size)
        block = a.block_table[row * a.max_blocks + entry]
        if block >= 0:
            a.drafter_kv[block * a.block_size + offset] = word
