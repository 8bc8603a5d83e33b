"""Definition of structured output on the device: loops over drafts and tokens."""

import numpy as np

from workers.kernels.grammar.arguments import ApplyMasks, GrammarDrafts
from workers.kernels.process_logits.arguments import BITS


def grammar_drafts(a: GrammarDrafts) -> None:
    """Let `rows` verify the drafts that the host names; where it cut one off the model is fed id 0."""
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
    """Set the logits whose bit a mask does not have to -inf: mask i is that of column columns[i]."""
    words_of_a_mask = (a.vocab_size + BITS - 1) // BITS
    for index in range(len(a.columns)):
        column = int(a.columns[index])
        for token in range(a.vocab_size):
            word = int(a.masks[index * words_of_a_mask + token // BITS])
            if (word >> (token % BITS)) & 1 == 0:
                a.logits[column * a.vocab_size + token] = -np.inf
