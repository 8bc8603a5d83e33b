"""Cases of spoiled logits: some rows, in any order."""

from collections.abc import Iterator

import numpy as np

from workers.kernels.spoil_logits.arguments import SpoilLogits


def cases() -> Iterator[SpoilLogits]:
    """Yield rows of 1 to 1500 logits."""
    for rows, num_logits in (([0], 1), ([4, 0, 2], 33), ([6], 129), ([3], 1500)):
        yield SpoilLogits(
            rows=np.array(rows), logits=np.arange(7 * num_logits, dtype=np.float32), num_logits=num_logits
        )
