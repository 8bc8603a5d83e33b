"""The EAGLE-like drafter: a first pass over the target's tokens, then a chain of single tokens.

Source: EAGLE, arXiv 2401.15077, for the shape: hidden words of the target beside the token that follows.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import DRAFTER_LAYER, draft_hidden, kv_word, mix
from workers.kernels.drafting.definition import attended, cached_words, cleared_rows, scripted
from workers.kernels.drafting.shared_arguments import CachedDrafts
from workers.kernels.sentinels import NO_DRAFT


@arguments
class DraftFirstPass(Arguments):
    """Write the drafter's cache for every token of the step, fed with the token that follows it.

    The token after a row's last kept one is its next token; what is written for rejected tokens is scratch. Padding
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
    """Propose `num_proposed` drafts for each row.

    The drafter attends over its own cache; the word it computes is `raw`, the token it proposes is the script's at
    that position. A row without a valid token proposes NO_DRAFT, as do columns from `num_proposed` on. What the
    chain writes to the cache, at `draft_slots`, is scratch. Padding rows come last; their `raw` is 0.
    """

    drafter_hidden: Annotated[Memory, In("uint64", "T")]
    draft_slots: Annotated[Memory, In("int64", "B * K")]


def draft_first_pass(a: DraftFirstPass) -> None:
    """Write the drafter's cache for every token of the step, fed with the token that follows it."""
    for token in range(len(a.hidden)):
        following = int(a.input_ids[token + 1]) if token + 1 < len(a.hidden) else 0
        for row in range(len(a.token_index)):
            if a.num_scheduled[row] > 0 and a.token_index[row] == token:
                following = int(a.next_tokens[row])
        word = draft_hidden(int(a.hidden[token]), following)
        a.drafter_hidden[token] = word
        if a.slots[token] >= 0:
            a.drafter_kv[a.slots[token]] = kv_word(word, int(a.positions[token]), DRAFTER_LAYER)


def draft_chain(a: DraftChain) -> None:
    """Propose `num_proposed` drafts for each row."""
    for row in cleared_rows(a):
        _propose(a, row)


def _propose(a: DraftChain, row: int) -> None:
    """Run the drafter on its own output, beginning with the first pass's word of the last kept token."""
    k, last = a.num_speculative_tokens, int(a.token_index[row])
    position, vector = int(a.positions[last]), int(a.drafter_hidden[last])
    cached = cached_words(a, row, position)
    raw, draft = 0, NO_DRAFT
    for index in range(a.num_proposed):
        if index > 0:
            vector = draft_hidden(raw, draft)
            position += 1
            cached.append(kv_word(vector, position, DRAFTER_LAYER))
            slot = int(a.draft_slots[row * k + index - 1])
            if slot >= 0:
                a.drafter_kv[slot] = cached[-1]
        raw = mix(vector + attended(cached, position))
        draft = scripted(a, row, position + 2) if a.valid[row] > 0 else NO_DRAFT
        a.raw[row * k + index] = raw
        a.draft_tokens[row * k + index] = draft
