"""Compute the logits of the positions that are to be sampled."""

from workers.kernels.arithmetic.vectorised import repeated, scores, to_end
from workers.kernels.compute_logits.arguments import ComputeLogits


def compute_logits(a: ComputeLogits) -> None:
    """Write the logits of the last 1 + d tokens of each row."""
    width = 1 + a.num_speculative_tokens
    end = a.query_start + a.num_scheduled
    index = end[repeated(len(end), width)]
    index -= to_end(width).take(a.num_drafts, axis=0).ravel()
    # Clipped: padding has no tokens.
    a.logits[:] = scores(a.hidden.take(index, mode="clip"), a.vocab_size).ravel()
