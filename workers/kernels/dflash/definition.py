"""Block drafter (DFlash): one pass over mask tokens gives all draft tokens of a row.

Source: DFlash, arXiv 2602.06036, for a block that follows a context of the target's hidden states.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.arithmetic.definition import DRAFTER_LAYER, draft_hidden, kv_entry, mix
from workers.kernels.drafting.definition import (
    attention_output,
    cached_entries,
    cleared_rows,
    script_entry,
    write_scratch,
)
from workers.kernels.drafting.shared_arguments import CachedDrafts


@arguments
class DflashContext(Arguments):
    """Write the drafter's KV entry (from the target's hidden state) of each token with a slot."""

    hidden: Annotated[Memory, In("uint64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class DflashBlock(CachedDrafts):
    """Propose all draft tokens of a row at once, from the hidden state of its last kept token.

    The block is the next token followed by `num_proposed` mask tokens (id `vocab_size`), at the positions after the
    context. Each attends to the whole context, and to all of the block with weight 2 |distance| + 1. `raw` is the
    output at a mask token; the draft token is the script's. A row without a valid token proposes NO_DRAFT. The block's
    KV entries are scratch. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    next_tokens: Annotated[Memory, In("int64", "B")]
    vocab_size: int


def dflash_context(a: DflashContext) -> None:
    """Write the drafter's KV entry (from the target's hidden state) of each token with a slot."""
    for token in range(len(a.hidden)):
        if a.slots[token] >= 0:
            a.drafter_kv[a.slots[token]] = kv_entry(int(a.hidden[token]), int(a.positions[token]), DRAFTER_LAYER)


def dflash_block(a: DflashBlock) -> None:
    """Propose all draft tokens of a row at once, from the hidden state of its last kept token."""
    for row in cleared_rows(a):
        _propose(a, row)


def _propose(a: DflashBlock, row: int) -> None:
    """Predict a row's draft tokens in one pass over its next token and mask tokens.

    Each of them attends to the whole block.
    """
    k, last = a.num_speculative_tokens, int(a.token_index[row])
    first, hidden = int(a.positions[last]) + 1, int(a.hidden[last])
    context = cached_entries(a, row, first - 1)
    mask = a.vocab_size
    vectors, block = [], []
    for place in range(1 + a.num_proposed):
        vectors.append(draft_hidden(hidden, int(a.next_tokens[row]) if place == 0 else mask))
        block.append(kv_entry(vectors[place], first + place, DRAFTER_LAYER))
        write_scratch(a, row, block[place], first + place)
    for place in range(1, 1 + a.num_proposed):
        seen = attention_output(context, first + place)
        for other, word in enumerate(block):
            seen += word * (2 * abs(place - other) + 1)
        a.raw[row * k + place - 1] = mix(vectors[place] + seen)
        if a.valid[row] > 0:
            a.draft_tokens[row * k + place - 1] = script_entry(a, row, first + place)
