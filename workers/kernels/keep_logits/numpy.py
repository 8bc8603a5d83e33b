"""Keep logits as they are before they are processed."""

from workers.kernels.keep_logits.definition import KeepLogits


def keep_logits(a: KeepLogits) -> None:
    """Copy logits before they are processed in place, for logprobs that are to be raw."""
    a.kept[:] = a.logits
