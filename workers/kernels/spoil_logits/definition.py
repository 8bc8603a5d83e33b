"""Definition of spoiled logits: a loop that makes each of a row's no number."""

import numpy as np

from workers.kernels.spoil_logits.arguments import SpoilLogits


def spoil_logits(a: SpoilLogits) -> None:
    """Set all logits of `rows`, `num_logits` each, to what is not a number."""
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        for offset in range(a.num_logits):
            a.logits[row * a.num_logits + offset] = np.nan
