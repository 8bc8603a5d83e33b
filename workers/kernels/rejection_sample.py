"""Verify drafts against the target model."""

import numpy as np

from workers.kernels.arithmetic import ZERO, below, integer, multiples
from workers.kernels.signature import NO_DRAFT, NO_TOKEN, In, Out

_NOTHING = np.array(-np.inf, dtype=np.float32)


def rejection_sample(
    logits: In,
    scheduled_drafts: In,
    num_scheduled: In,
    num_drafts: In,
    invalid: In,
    sampled: Out,
    num_speculative_tokens: int,
    vocab_size: int,
) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus.

    Shapes: logits [num_rows * (1 + K) * V]; scheduled_drafts [num_rows * K]; num_scheduled, num_drafts, invalid
    [num_rows]; sampled [num_rows * (1 + K)]. Greedy: a draft is accepted iff it is the target's argmax, lowest index
    first; NO_DRAFT never is. Valid tokens are a contiguous prefix, the rest is NO_TOKEN. Padding rows, and rows
    marked invalid, have none. A column without a largest logit (one is NaN, or all are -inf) has no token: the row
    ends before it.
    Source: Leviathan et al., arXiv 2211.17192, at temperature 0; vLLM PR #37238.
    """
    k, num_rows, width = num_speculative_tokens, len(num_drafts), 1 + num_speculative_tokens
    largest = logits.reshape(-1, vocab_size).argmax(axis=1)
    is_token = logits.take(multiples(len(largest), vocab_size) + largest) > _NOTHING
    target = largest.reshape(num_rows, width)
    drafts = np.empty((num_rows, width), dtype=np.int64)
    drafts.fill(NO_DRAFT)
    drafts[:, :k] = scheduled_drafts.reshape(num_rows, k)
    is_kept = drafts == target
    # No row has so many drafts that the last column is one.
    is_kept &= below(width).take(num_drafts, axis=0)
    if np.count_nonzero(is_token) < len(is_token):
        is_kept &= is_token.reshape(num_rows, width)
        np.copyto(largest, integer(NO_TOKEN), where=np.logical_not(is_token))
    num_tokens = is_kept.argmin(axis=1)
    num_tokens += integer(1)
    np.copyto(num_tokens, ZERO, where=(num_scheduled == ZERO) | (invalid > ZERO))
    sampled.fill(NO_TOKEN)
    np.copyto(sampled.reshape(num_rows, width), target, where=below(width).take(num_tokens, axis=0))
