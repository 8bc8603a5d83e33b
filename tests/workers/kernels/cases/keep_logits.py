"""Cases of kept logits: one and many, some of them NaN."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import floats
from workers.kernels.keep_logits.definition import KeepLogits


def cases() -> Iterator[KeepLogits]:
    """Yield 1, 33 and 1025 logits."""
    for count in (1, 33, 1025):
        logits = np.arange(count, dtype=np.float32) - 7
        logits[-3:] = np.array([np.inf, -np.inf, np.nan])[-count:]
        yield KeepLogits(logits=logits, kept=floats(count))
