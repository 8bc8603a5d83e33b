"""Cases of a drafter's position limit: tokens and rows before, at and after it."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches, integers
from workers.kernels.drafter_limit.definition import LimitDrafts, LimitSlots


def cases() -> Iterator[LimitDrafts | LimitSlots]:
    """Yield every batch with position limits that its tokens or draft tokens cross."""
    for index, batch in enumerate(batches()):
        last = int(np.median(batch.positions))
        for limit in (last, last + 1):
            yield LimitSlots(
                positions=batch.positions,
                slots=batch.slots,
                drafter_slots=integers(batch.num_tokens),
                drafter_max_len=limit,
            )
        for limit in (last + 1 + batch.k, last + 2 + batch.k):
            yield LimitDrafts(
                positions=batch.positions,
                token_index=batch.verified_first,
                draft_tokens=batch.rng.integers(-1, batch.vocab_size, batch.num_rows * batch.k),
                num_speculative_tokens=batch.k,
                num_proposed=max(batch.k - index % 2, 0),
                drafter_max_len=limit,
            )
