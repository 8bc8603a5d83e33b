"""Cases of logits: every number of draft tokens, padding rows at the end of the batch."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches, floats
from workers.kernels.compute_logits.definition import ComputeLogits


def cases() -> Iterator[ComputeLogits]:
    """Yield every batch, and one with rows that begin or end outside `hidden`."""
    for made in batches():
        yield ComputeLogits(
            hidden=made.words(made.num_tokens),
            query_start=made.query_start,
            num_scheduled=made.num_scheduled,
            num_drafts=made.num_drafts,
            logits=floats(made.num_rows * (1 + made.k) * made.vocab_size),
            num_speculative_tokens=made.k,
            vocab_size=made.vocab_size,
        )
    yield ComputeLogits(
        hidden=np.arange(7, dtype=np.uint64),
        query_start=np.array([0, 3, 7]),
        num_scheduled=np.array([0, 1, 2]),
        num_drafts=np.array([0, 0, 0]),
        logits=floats(15),
        num_speculative_tokens=0,
        vocab_size=5,
    )
