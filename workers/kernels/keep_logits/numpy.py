"""Keep logits as they are before they are processed."""

from workers.kernels.keep_logits.definition import KeepLogits


def keep_logits(a: KeepLogits) -> None:
    a.kept[:] = a.logits
