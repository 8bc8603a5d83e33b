"""Set logits to NaN, by an event."""

import numpy as np

from workers.kernels.spoil_logits.definition import SpoilLogits


def spoil_logits(a: SpoilLogits) -> None:
    """Set all logits of `rows`, `num_logits` each, to NaN."""
    a.logits.reshape(-1, a.num_logits)[a.rows] = np.nan
