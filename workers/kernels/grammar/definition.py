"""Structured output on the device: checked draft tokens, bitmasks of allowed tokens."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.process_logits.definition import BITS


@arguments
class GrammarDrafts(Arguments):
    """Replace the draft tokens of grammar rows by the ones that the host has checked.

    The draft token is NO_DRAFT where the host has cut draft tokens off; the model's input id is then 0.
    """

    rows: Annotated[Memory, In("int64", "count", of=("grammar_rows",))]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    host_ids: Annotated[Memory, In("int64", "T")]
    input_ids: Annotated[Memory, InOut("int64", "T")]
    scheduled_drafts: Annotated[Memory, InOut("int64", "B * K")]
    num_speculative_tokens: int


@arguments
class ApplyMasks(Arguments):
    """Set logits of forbidden tokens to -inf: bitmask i applies to logits row `columns[i]`."""

    columns: Annotated[Memory, In("int64", "count")]
    masks: Annotated[Memory, In("int64", "count * num_words")]
    logits: Annotated[Memory, InOut("float32", "B * (1 + K) * V")]
    vocab_size: int


def grammar_drafts(a: GrammarDrafts) -> None:
    """Replace the draft tokens of grammar rows by the ones that the host has checked.

    The input id of a removed one is 0.
    """
    k = a.num_speculative_tokens
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        num_drafts = int(a.num_drafts[row])
        first = int(a.query_start[row]) + int(a.num_scheduled[row]) - num_drafts
        for column in range(num_drafts):
            draft = int(a.host_ids[first + column])
            a.scheduled_drafts[row * k + column] = draft
            a.input_ids[first + column] = max(draft, 0)


def apply_masks(a: ApplyMasks) -> None:
    """Set logits of forbidden tokens to -inf: bitmask i applies to logits row `columns[i]`."""
    words_of_a_mask = (a.vocab_size + BITS - 1) // BITS
    for index in range(len(a.columns)):
        column = int(a.columns[index])
        for token in range(a.vocab_size):
            word = int(a.masks[index * words_of_a_mask + token // BITS])
            if (word >> (token % BITS)) & 1 == 0:
                a.logits[column * a.vocab_size + token] = -np.inf
