"""Verify drafts against the target model."""

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, below, integer, multiples
from workers.kernels.rejection_sample.arguments import RejectionSample
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN


def rejection_sample(a: RejectionSample) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus."""
    k, num_rows, width = a.num_speculative_tokens, len(a.num_drafts), 1 + a.num_speculative_tokens
    largest = a.logits.reshape(-1, a.vocab_size).argmax(axis=1)
    # The largest of a line with NaN is NaN.
    is_token = np.isfinite(a.logits.take(multiples(len(largest), a.vocab_size) + largest))
    target = largest.reshape(num_rows, width)
    drafts = np.empty((num_rows, width), dtype=np.int64)
    drafts.fill(NO_DRAFT)
    drafts[:, :k] = a.scheduled_drafts.reshape(num_rows, k)
    is_kept = drafts == target
    # No row has so many drafts that the last column is one.
    is_kept &= below(width).take(a.num_drafts, axis=0)
    if np.count_nonzero(is_token) < len(is_token):
        is_kept &= is_token.reshape(num_rows, width)
        np.copyto(largest, integer(NO_TOKEN), where=np.logical_not(is_token))
    num_tokens = is_kept.argmin(axis=1)
    num_tokens += integer(1)
    np.copyto(num_tokens, ZERO, where=(a.num_scheduled == ZERO) | (a.invalid > ZERO))
    a.sampled.fill(NO_TOKEN)
    np.copyto(a.sampled.reshape(num_rows, width), target, where=below(width).take(num_tokens, axis=0))
