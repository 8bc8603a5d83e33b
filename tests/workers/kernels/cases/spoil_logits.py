"""Cases of spoiled logits and draft tokens: some rows in any order; first and last entries."""

from collections.abc import Iterator

import numpy as np

from workers.kernels.spoil_logits.definition import SpoilLogits, SpoilOneDraft, SpoilOneLogit


def cases() -> Iterator[SpoilLogits | SpoilOneLogit | SpoilOneDraft]:
    """Yield rows of 1 to 1500 logits, then single logits."""
    for rows, num_logits in (([0], 1), ([4, 0, 2], 33), ([6], 129), ([3], 1500)):
        yield SpoilLogits(
            rows=np.array(rows), logits=np.arange(7 * num_logits, dtype=np.float32), num_logits=num_logits
        )
    for place, is_infinite, token in ((0, 1, -2), (64, 0, 65), (9, 1, 1 << 40), (32, 0, 0)):
        yield SpoilOneLogit(logits=np.arange(65, dtype=np.float32), place=place, is_infinite=is_infinite)
        yield SpoilOneDraft(draft_tokens=np.arange(65), place=place, token=token)
