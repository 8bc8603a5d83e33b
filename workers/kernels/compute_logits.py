"""Compute the logits of the positions that are to be sampled."""

from workers.kernels.arithmetic import LOGIT_SHIFT, capped, integer, mix, vocabulary
from workers.kernels.signature import In, Out


def compute_logits(
    hidden: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    logits: Out,
    num_speculative_tokens: int,
    vocab_size: int,
) -> None:
    """Write the logits of the last 1 + d tokens of each row.

    Shapes: hidden [num_tokens] uint64; query_start, num_scheduled, num_drafts [num_rows];
    logits [num_rows * (1 + K) * V] float32, integers below 2^24 and so exact. Columns past d repeat column d.
    """
    width = 1 + num_speculative_tokens
    first = query_start + num_scheduled
    first -= num_drafts
    first -= integer(1)
    index = first.repeat(width)
    index += capped(width).take(num_drafts, axis=0).ravel()
    # Clipped: padding has no tokens.
    words_in = hidden.take(index, mode="clip")
    scores = mix(words_in[:, None] + vocabulary(vocab_size))
    scores >>= LOGIT_SHIFT
    logits.reshape(scores.shape)[:] = scores
