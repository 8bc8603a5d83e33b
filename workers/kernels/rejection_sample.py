"""Verify drafts against the target model."""

import numpy as np

from workers.kernels.arithmetic import arange, integer
from workers.kernels.signature import NO_TOKEN, In, Out

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
    k = num_speculative_tokens
    num_rows = len(num_drafts)
    columns = logits.reshape(-1, vocab_size)
    largest = columns.argmax(axis=1)
    is_token = logits.take(arange(len(largest)) * integer(vocab_size) + largest) > _NOTHING
    target = largest.reshape(num_rows, 1 + k)
    matches = (scheduled_drafts.reshape(num_rows, k) == target[:, :k]) & (arange(k) < num_drafts[:, None])
    if np.count_nonzero(is_token) < len(is_token):
        defined = is_token.reshape(num_rows, 1 + k)
        matches &= defined[:, :k]
        target = np.where(defined, target, NO_TOKEN)
    # The first column that does not match; the sentinel column never does.
    refused = np.empty((num_rows, 1 + k), dtype=bool)
    refused[:, k] = True
    np.logical_not(matches, out=refused[:, :k])
    accepted = refused.argmax(axis=1)
    accepted[(num_scheduled == integer(0)) | (invalid > integer(0))] = -1
    sampled.fill(NO_TOKEN)
    np.copyto(sampled.reshape(num_rows, 1 + k), target, where=arange(1 + k) <= accepted[:, None])
