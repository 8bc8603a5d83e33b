"""Greedy rejection sampler: verify draft tokens against the target model's argmax."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.sentinels import NO_TOKEN


@arguments
class RejectionSample(Arguments):
    """Emit each row's accepted draft tokens, then the recovered or bonus token.

    A draft token is accepted if it is the target's argmax (lowest index first); NO_DRAFT never is. Valid tokens are a
    contiguous prefix, followed by NO_TOKEN. Padding rows, and rows marked invalid, emit nothing. A column without a
    largest logit (one is NaN or inf, or all are -inf) has no token: the row ends before it.
    Source: Leviathan et al., arXiv 2211.17192, at temperature 0; vLLM PR #37238.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * V")]
    scheduled_drafts: Annotated[Memory, In("int64", "B * K")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    invalid: Annotated[Memory, In("int64", "B")]
    sampled: Annotated[Memory, Out("int64", "B * (1 + K)")]
    num_speculative_tokens: int
    vocab_size: int


def rejection_sample(a: RejectionSample) -> None:
    """Emit each row's accepted draft tokens, then the recovered or bonus token."""
    k, width = a.num_speculative_tokens, 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        for column in range(width):
            a.sampled[row * width + column] = NO_TOKEN
        if a.num_scheduled[row] == 0 or a.invalid[row] > 0:
            continue
        for column in range(width):
            token = largest_of(a, row * width + column)
            if token is None:
                break
            a.sampled[row * width + column] = token
            if column == a.num_drafts[row] or a.scheduled_drafts[row * k + column] != token:
                break


def largest_of(a: RejectionSample, line: int) -> int | None:
    """Return the token with the largest logit of a row; on a tie the lowest id.

    None if a logit is NaN or inf, or all are -inf.
    """
    best, largest = None, -np.inf
    for token in range(a.vocab_size):
        logit = a.logits[line * a.vocab_size + token]
        if not logit < np.inf:
            return None
        if logit > largest:
            best, largest = token, logit
    return best
