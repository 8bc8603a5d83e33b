"""Compute the logits of the positions that are to be sampled."""

from workers.kernels.arithmetic.vectorised import LOGIT_SHIFT, capped, integer, mix, vocabulary
from workers.kernels.compute_logits.arguments import ComputeLogits


def compute_logits(a: ComputeLogits) -> None:
    """Write the logits of the last 1 + d tokens of each row."""
    width = 1 + a.num_speculative_tokens
    first = a.query_start + a.num_scheduled
    first -= a.num_drafts
    first -= integer(1)
    index = first.repeat(width)
    index += capped(width).take(a.num_drafts, axis=0).ravel()
    # Clipped: padding has no tokens.
    words_in = a.hidden.take(index, mode="clip")
    scores = mix(words_in[:, None] + vocabulary(a.vocab_size))
    scores >>= LOGIT_SHIFT
    a.logits.reshape(scores.shape)[:] = scores
