"""Logarithms of probabilities, one sampled token at a time."""

from math import exp, log

from workers.kernels.logprobs.arguments import LOGIT_SCALE, LOGPROBS_MAX, FlattenLogprobs, TokenLogprobs
from workers.kernels.sentinels import NO_TOKEN


def token_logprobs(a: TokenLogprobs) -> None:
    """Write the logprob of each sampled token of `rows`, then those of the likeliest tokens, the lowest id first."""
    width = 1 + a.num_speculative_tokens
    for index in range(len(a.rows)):
        for column in range(width):
            place = int(a.rows[index]) * width + column
            sampled = int(a.sampled[place])
            if sampled == NO_TOKEN:
                continue
            first = place * a.vocab_size
            scores = [float(a.logits[first + token]) * float(LOGIT_SCALE) for token in range(a.vocab_size)]
            largest = max(scores)
            normal = largest + log(sum(exp(score - largest) for score in scores))
            likeliest = sorted(range(a.vocab_size), key=lambda token: (-scores[token], token))
            chosen = [sampled, *likeliest[: LOGPROBS_MAX - 1]]
            for rank in range(LOGPROBS_MAX):
                if rank < len(chosen):
                    a.ids[place * LOGPROBS_MAX + rank] = chosen[rank]
                    a.logprobs[place * LOGPROBS_MAX + rank] = scores[chosen[rank]] - normal
                else:
                    a.ids[place * LOGPROBS_MAX + rank] = NO_TOKEN


def flatten_logprobs(a: FlattenLogprobs) -> None:
    """Concatenate the logprobs of `rows`: those of as many columns as the row has valid tokens."""
    end = 0
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        first = row * a.width * LOGPROBS_MAX
        for offset in range(int(a.num_sampled[row]) * LOGPROBS_MAX):
            a.flat_ids[end] = a.ids[first + offset]
            a.flat_logprobs[end] = a.logprobs[first + offset]
            end += 1
