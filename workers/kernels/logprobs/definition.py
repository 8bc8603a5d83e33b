"""Compute logprobs of sampled tokens and of the most likely tokens."""

from math import exp, log
from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.sentinels import NO_TOKEN

LOGPROBS_MAX = 6
LOGIT_SCALE = np.float32(2.0**-20)  # a logit of 1.0 is 2^20 units


@arguments
class TokenLogprobs(Arguments):
    """Write the logprobs of each sampled token of `rows` and of the most likely tokens.

    There are LOGPROBS_MAX entries per sampled token, the sampled token first.

    If the vocabulary has fewer tokens, ids are NO_TOKEN. Columns past the last sampled token are not written.
    """

    rows: Annotated[Memory, In("int64", "count", of=("logprobs_rows",))]
    logits: Annotated[Memory, In("float32", "B * (1 + K) * V", of=("raw_logits",))]
    sampled: Annotated[Memory, In("int64", "B * (1 + K)")]
    ids: Annotated[Memory, Out("int64", f"rows_max * (1 + K) * {LOGPROBS_MAX}", of=("logprob_ids",))]
    logprobs: Annotated[Memory, Out("float32", f"rows_max * (1 + K) * {LOGPROBS_MAX}")]
    num_speculative_tokens: int
    vocab_size: int


@arguments
class FlattenLogprobs(Arguments):
    """Concatenate the logprobs of all sampled tokens of `rows` into flat arrays.

    Source: the review of vLLM PR #37238.
    """

    rows: Annotated[Memory, In("int64", "count", of=("logprobs_rows",))]
    num_sampled: Annotated[Memory, In("int64", "B", of=("valid",))]
    ids: Annotated[Memory, In("int64", f"rows_max * width * {LOGPROBS_MAX}", of=("logprob_ids",))]
    logprobs: Annotated[Memory, In("float32", f"rows_max * width * {LOGPROBS_MAX}")]
    flat_ids: Annotated[Memory, Out("int64", f"rows_max * width * {LOGPROBS_MAX}", of=("flat_logprob_ids",))]
    flat_logprobs: Annotated[Memory, Out("float32", f"rows_max * width * {LOGPROBS_MAX}")]
    width: int


def token_logprobs(a: TokenLogprobs) -> None:
    """Write the logprobs of each sampled token of `rows` and of the most likely tokens.

    Equally likely tokens are in the order of their ids.
    """
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
    """Concatenate the logprobs of all sampled tokens of `rows` into flat arrays."""
    end = 0
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        first = row * a.width * LOGPROBS_MAX
        for offset in range(int(a.num_sampled[row]) * LOGPROBS_MAX):
            a.flat_ids[end] = a.ids[first + offset]
            a.flat_logprobs[end] = a.logprobs[first + offset]
            end += 1
