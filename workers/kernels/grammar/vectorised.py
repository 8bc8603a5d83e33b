"""Structured output on the device: drafts that the host has checked, and masks of the tokens that may come."""

import numpy as np

from workers.kernels.grammar.arguments import ApplyMasks, GrammarDrafts
from workers.kernels.process_logits.vectorised import bits_of


def grammar_drafts(a: GrammarDrafts) -> None:
    """Let `rows` verify the drafts that the host names, not those the device proposed."""
    for row in a.rows:
        d, end = a.num_drafts[row], a.query_start[row] + a.num_scheduled[row]
        first = row * a.num_speculative_tokens
        a.scheduled_drafts[first : first + d] = a.host_ids[end - d : end]
        a.input_ids[end - d : end] = np.maximum(a.host_ids[end - d : end], 0)


def apply_masks(a: ApplyMasks) -> None:
    """Set the logits that a mask leaves out to -inf: mask i is that of column columns[i]."""
    scores = a.logits.reshape(-1, a.vocab_size)
    for column, words in zip(a.columns, a.masks.reshape(len(a.columns), -1), strict=True):
        scores[column, ~bits_of(words, a.vocab_size)] = -np.inf
