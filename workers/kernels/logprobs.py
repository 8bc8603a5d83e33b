"""Logarithms of the probabilities of sampled tokens and of the likeliest ones."""

import numpy as np

from workers.kernels.signature import NO_TOKEN, In, Out

LOGPROBS_MAX = 6
LOGIT_SCALE = np.float32(2.0**-20)  # a logit of 1.0 is 2^20 units


def keep_logits(logits: In, kept: Out) -> None:
    """Copy logits before they are processed in place, for logprobs that are to be raw."""
    kept[:] = logits


def token_logprobs(
    rows: In, logits: In, sampled: In, ids: Out, logprobs: Out, num_speculative_tokens: int, vocab_size: int
) -> None:
    """Write, for each sampled token of `rows`, its logprob and those of the LOGPROBS_MAX - 1 likeliest tokens.

    Shapes: rows [any]; logits [num_rows * (1 + K) * V]; sampled [num_rows * (1 + K)]; ids, logprobs float32
    [num_rows * (1 + K) * LOGPROBS_MAX]: the sampled token, then the largest logits, lowest index first among equals.
    Where the vocabulary has fewer tokens ids are NO_TOKEN. Columns past the last sampled token are not written.
    """
    width = 1 + num_speculative_tokens
    scores = logits.reshape(-1, width, vocab_size)
    tokens = sampled.reshape(-1, width)
    found_ids, found = ids.reshape(-1, width, LOGPROBS_MAX), logprobs.reshape(-1, width, LOGPROBS_MAX)
    for row in rows:
        for column in range(np.count_nonzero(tokens[row] != NO_TOKEN)):
            scaled = scores[row, column] * LOGIT_SCALE
            largest = scaled.max()
            normal = scaled - (largest + np.log(np.exp(scaled - largest).sum()))
            chosen = [tokens[row, column], *np.argsort(-scaled, kind="stable")[: LOGPROBS_MAX - 1]]
            found_ids[row, column] = NO_TOKEN
            found_ids[row, column, : len(chosen)] = chosen
            found[row, column, : len(chosen)] = normal[chosen]


def flatten_logprobs(
    rows: In, num_sampled: In, ids: In, logprobs: In, flat_ids: Out, flat_logprobs: Out, width: int
) -> None:
    """Put the logprobs of `rows` one behind the other: those of num_sampled columns of each row, no more.

    Shapes: rows [any]; num_sampled [num_rows]; ids, logprobs [num_rows * width * LOGPROBS_MAX], the others as long.
    Source: the review of vLLM PR #37238.
    """
    start = 0
    for row in rows:
        first, length = row * width * LOGPROBS_MAX, num_sampled[row] * LOGPROBS_MAX
        flat_ids[start : start + length] = ids[first : first + length]
        flat_logprobs[start : start + length] = logprobs[first : first + length]
        start += length
