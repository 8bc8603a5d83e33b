"""Compute the logits of each row's last token and its draft tokens."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.numpy import Integers, arange, column, repeated, scores, shared
from workers.kernels.compute_logits.definition import ComputeLogits


def compute_logits(a: ComputeLogits) -> None:
    width = 1 + a.num_speculative_tokens
    end = a.query_start + a.num_scheduled
    index = end[repeated(len(end), width)]
    index -= _to_end(width).take(a.num_drafts, axis=0).ravel()
    # Indexes are clipped because padding rows have no tokens.
    a.logits[:] = scores(a.hidden.take(index, mode="clip"), a.vocab_size).ravel()


@cache
def _to_end(stop: int) -> Integers:
    """Return max(n - i, 0) + 1 for row length n and column i < stop: the distance from the end."""
    return shared(np.maximum(column(stop) - arange(stop), 0) + 1)
