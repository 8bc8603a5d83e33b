"""Definition of greedy verification: a loop over the columns of each row, up to the first that is not kept."""

import numpy as np

from workers.kernels.rejection_sample.arguments import RejectionSample
from workers.kernels.sentinels import NO_TOKEN


def rejection_sample(a: RejectionSample) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus."""
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
    """Return the token with the largest logit of a line, the lowest of equal ones.

    None if one is NaN or inf, or all are -inf.
    """
    best, largest = None, -np.inf
    for token in range(a.vocab_size):
        logit = a.logits[line * a.vocab_size + token]
        if not logit < np.inf:
            return None
        if logit > largest:
            best, largest = token, logit
    return best
