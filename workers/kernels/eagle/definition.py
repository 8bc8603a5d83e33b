"""EAGLE-like drafter: a pass over the target's tokens, then a chain of draft tokens.

Source: EAGLE, arXiv 2401.15077: the input is the target's hidden state combined with the token that follows.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import DRAFTER_LAYER, draft_hidden, kv_entry, mix
from workers.kernels.drafting.definition import attention_output, cached_entries, cleared_rows, script_entry
from workers.kernels.drafting.shared_arguments import CachedDrafts
from workers.kernels.sentinels import NO_DRAFT


@arguments
class DraftFirstPass(Arguments):
    """Write the drafter's KV entries of all tokens of the step.

    The input also contains the token that follows.

    The token that follows a row's last kept token is its next token. KV entries of rejected tokens are scratch. Padding
    rows come last.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    token_index: Annotated[Memory, In("int64", "B")]
    next_tokens: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    drafter_hidden: Annotated[Memory, Out("uint64", "T")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class DraftChain(CachedDrafts):
    """Propose `num_proposed` draft tokens for each row.

    The drafter attends to its own KV cache and computes the word `raw`; the proposed token is the script's at that
    position. NO_DRAFT in rows without a valid token and in columns from `num_proposed` on. KV entries that the chain
    writes, at `draft_slots`, are scratch. Padding rows come last; their `raw` is 0.
    """

    drafter_hidden: Annotated[Memory, In("uint64", "T")]
    draft_slots: Annotated[Memory, In("int64", "B * K")]


def draft_first_pass(a: DraftFirstPass) -> None:
    """Write the drafter's KV entries of all tokens of the step.

    The input also contains the token that follows.
    """
    for token in range(len(a.hidden)):
        following = int(a.input_ids[token + 1]) if token + 1 < len(a.hidden) else 0
        for row in range(len(a.token_index)):
            if a.num_scheduled[row] > 0 and a.token_index[row] == token:
                following = int(a.next_tokens[row])
        word = draft_hidden(int(a.hidden[token]), following)
        a.drafter_hidden[token] = word
        if a.slots[token] >= 0:
            a.drafter_kv[a.slots[token]] = kv_entry(word, int(a.positions[token]), DRAFTER_LAYER)


def draft_chain(a: DraftChain) -> None:
    """Propose `num_proposed` draft tokens for each row."""
    for row in cleared_rows(a):
        _propose(a, row)


def _propose(a: DraftChain, row: int) -> None:
    """Propose a row's draft tokens: run the drafter on its own output after the first pass."""
    k, last = a.num_speculative_tokens, int(a.token_index[row])
    position, vector = int(a.positions[last]), int(a.drafter_hidden[last])
    cached = cached_entries(a, row, position)
    raw, draft = 0, NO_DRAFT
    for index in range(a.num_proposed):
        if index > 0:
            vector = draft_hidden(raw, draft)
            position += 1
            cached.append(kv_entry(vector, position, DRAFTER_LAYER))
            slot = int(a.draft_slots[row * k + index - 1])
            if slot >= 0:
                a.drafter_kv[slot] = cached[-1]
        raw = mix(vector + attention_output(cached, position))
        draft = script_entry(a, row, position + 2) if a.valid[row] > 0 else NO_DRAFT
        a.raw[row * k + index] = raw
        a.draft_tokens[row * k + index] = draft
