"""Compute logprobs of sampled tokens and of the most likely tokens."""

import numpy as np

from workers.kernels.logprobs.definition import LOGIT_SCALE, LOGPROBS_MAX, TokenLogprobs
from workers.kernels.sentinels import NO_TOKEN


def token_logprobs(a: TokenLogprobs) -> None:
    width = 1 + a.num_speculative_tokens
    for row in a.rows.tolist():
        for line in range(row * width, (row + 1) * width):
            if a.sampled[line] == NO_TOKEN:
                break
            _write_line(a, line)


def _write_line(a: TokenLogprobs, line: int) -> None:
    """Write the logprobs of one row of logits: the sampled token, then the most likely tokens."""
    scaled = a.logits[line * a.vocab_size : (line + 1) * a.vocab_size] * LOGIT_SCALE
    likeliest = (-scaled).argsort(kind="stable")[: LOGPROBS_MAX - 1]
    largest = scaled[likeliest[0]]
    first, last = line * LOGPROBS_MAX, (line + 1) * LOGPROBS_MAX
    count = 1 + len(likeliest)
    chosen = a.ids[first : first + count]
    chosen[0], chosen[1:] = a.sampled[line], likeliest
    a.ids[first + count : last] = NO_TOKEN
    a.logprobs[first : first + count] = scaled[chosen] - (largest + np.log(np.add.reduce(np.exp(scaled - largest))))
