"""Logarithms of the probabilities of sampled tokens and of the likeliest ones."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

LOGPROBS_MAX = 6
LOGIT_SCALE = np.float32(2.0**-20)  # a logit of 1.0 is 2^20 units


@arguments
class TokenLogprobs(Arguments):
    """Write, for each sampled token of `rows`, its logprob and those of the LOGPROBS_MAX - 1 likeliest tokens.

    Where the vocabulary has fewer tokens ids are NO_TOKEN. Columns past the last sampled token are not written.
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
    """Concatenate the logprobs of `rows`: those of the first num_sampled columns of each.

    Source: the review of vLLM PR #37238.
    """

    rows: Annotated[Memory, In("int64", "count", of=("logprobs_rows",))]
    num_sampled: Annotated[Memory, In("int64", "B", of=("valid",))]
    ids: Annotated[Memory, In("int64", f"rows_max * width * {LOGPROBS_MAX}", of=("logprob_ids",))]
    logprobs: Annotated[Memory, In("float32", f"rows_max * width * {LOGPROBS_MAX}")]
    flat_ids: Annotated[Memory, Out("int64", f"rows_max * width * {LOGPROBS_MAX}", of=("flat_logprob_ids",))]
    flat_logprobs: Annotated[Memory, Out("float32", f"rows_max * width * {LOGPROBS_MAX}")]
    width: int
