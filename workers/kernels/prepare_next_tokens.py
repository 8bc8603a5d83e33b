"""Find the token each row goes on from."""

import numpy as np

from workers.kernels.arithmetic import arange
from workers.kernels.signature import NO_TOKEN, In, Out


def prepare_next_tokens(
    sampled: In,
    discard: In,
    backup: In,
    input_ids: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    next_tokens: Out,
    valid: Out,
    width: int,
    vocab_size: int,
) -> None:
    """Return each row's last valid sampled token and the number of them.

    Shapes: sampled [num_rows * width]; input_ids [num_tokens]; the others [num_rows].
    A discarded row (a prefill chunk that is not the last) counts 0 and goes on from its backup token, the last token
    the host knows. A row that sampled nothing valid goes on from the token it was to verify first, once more.
    Source: vLLM PRs #38556 and #41043.
    """
    tokens = sampled.reshape(-1, width)
    counts = np.add.reduce((tokens != NO_TOKEN) & (tokens < vocab_size), axis=1, dtype=np.int64)
    last = tokens[arange(len(counts)), np.maximum(counts - 1, 0)]
    first = query_start + num_scheduled - 1 - num_drafts
    again = input_ids.take(np.minimum(np.maximum(first, 0), len(input_ids) - 1))
    discarded = discard > 0
    next_tokens[:] = np.where(discarded, backup, np.where(counts > 0, last, again))
    np.multiply(counts, ~discarded, out=valid)
