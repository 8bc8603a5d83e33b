"""Definition of kept logits: a loop that copies them before they are processed in place."""

from workers.kernels.keep_logits.arguments import KeepLogits


def keep_logits(a: KeepLogits) -> None:
    """Copy logits."""
    for index in range(len(a.logits)):
        a.kept[index] = a.logits[index]
