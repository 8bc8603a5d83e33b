"""Logarithms of the probabilities of sampled tokens and of the likeliest ones."""

import numpy as np

from workers.kernels.logprobs.arguments import LOGIT_SCALE, LOGPROBS_MAX, FlattenLogprobs, TokenLogprobs
from workers.kernels.sentinels import NO_TOKEN


def token_logprobs(a: TokenLogprobs) -> None:
    """Write, for each sampled token of `rows`, its logprob and those of the LOGPROBS_MAX - 1 likeliest tokens."""
    width = 1 + a.num_speculative_tokens
    scores = a.logits.reshape(-1, width, a.vocab_size)
    tokens = a.sampled.reshape(-1, width)
    found_ids, found = a.ids.reshape(-1, width, LOGPROBS_MAX), a.logprobs.reshape(-1, width, LOGPROBS_MAX)
    for row in a.rows:
        for column in range(np.count_nonzero(tokens[row] != NO_TOKEN)):
            scaled = scores[row, column] * LOGIT_SCALE
            largest = scaled.max()
            normal = scaled - (largest + np.log(np.exp(scaled - largest).sum()))
            chosen = [tokens[row, column], *np.argsort(-scaled, kind="stable")[: LOGPROBS_MAX - 1]]
            found_ids[row, column] = NO_TOKEN
            found_ids[row, column, : len(chosen)] = chosen
            found[row, column, : len(chosen)] = normal[chosen]


def flatten_logprobs(a: FlattenLogprobs) -> None:
    """Put the logprobs of `rows` one behind the other: those of num_sampled columns of each row, no more."""
    start = 0
    for row in a.rows:
        first, length = row * a.width * LOGPROBS_MAX, a.num_sampled[row] * LOGPROBS_MAX
        a.flat_ids[start : start + length] = a.ids[first : first + length]
        a.flat_logprobs[start : start + length] = a.logprobs[first : first + length]
        start += length
