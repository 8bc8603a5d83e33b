"""Bitmasks of structured output: the allowed tokens."""

import numpy as np

from workers.kernels.grammar.definition import ApplyMasks
from workers.kernels.process_logits.numpy import bits_of


def apply_masks(a: ApplyMasks) -> None:
    scores = a.logits.reshape(-1, a.vocab_size)
    for column, words in zip(a.columns, a.masks.reshape(len(a.columns), -1), strict=True):
        scores[column, ~bits_of(words, a.vocab_size)] = -np.inf
