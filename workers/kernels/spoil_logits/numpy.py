"""Set logits to NaN, by an event."""

import numpy as np

from workers.kernels.spoil_logits.definition import SpoilLogits


def spoil_logits(a: SpoilLogits) -> None:
    a.logits.reshape(-1, a.num_logits)[a.rows] = np.nan
