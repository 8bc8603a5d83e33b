"""Verify drafts against the target model."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import ZERO, Integers, arange, below, integer, multiples, shared
from workers.kernels.rejection_sample.arguments import RejectionSample
from workers.kernels.sentinels import NO_TOKEN


def rejection_sample(a: RejectionSample) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus."""
    k, num_rows, width = a.num_speculative_tokens, len(a.num_drafts), 1 + a.num_speculative_tokens
    target = a.logits.reshape(-1, a.vocab_size).argmax(axis=1)
    # The largest of a line with NaN is NaN.
    is_token = np.isfinite(a.logits[multiples(len(target), a.vocab_size) + target])
    # No row has so many drafts that the last column is one: what is compared there does not matter.
    is_kept = below(width).take(a.num_drafts, axis=0)
    if k:
        is_kept &= (a.scheduled_drafts[_widened(num_rows, k)] == target).reshape(is_kept.shape)
    if np.count_nonzero(is_token) < len(is_token):
        is_kept &= is_token.reshape(is_kept.shape)
        target[np.logical_not(is_token)] = NO_TOKEN
    num_tokens = is_kept.argmin(axis=1)
    num_tokens += integer(1)
    num_tokens[(a.num_scheduled == ZERO) | (a.invalid > ZERO)] = ZERO
    target[_from_on(width).take(num_tokens, axis=0).ravel()] = integer(NO_TOKEN)
    a.sampled[:] = target


@cache
def _from_on(stop: int) -> NDArray[np.bool_]:
    """Return for each n up to `stop` which of the numbers below `stop` are n or more: [stop + 1, stop]."""
    return shared(~below(stop))


@cache
def _widened(num_lines: int, width: int) -> Integers:
    """Return the places of lines of `width` elements, the last of each twice, flat."""
    return shared(np.minimum(arange(1 + width), width - 1)[None] + multiples(num_lines, width)[:, None]).ravel()
