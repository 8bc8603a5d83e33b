"""Cases of extracted hidden states: with and without a draft token or valid tokens."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Row, batch, integers
from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates

ROWS = [Row(2, 1, 4), Row(5, 0, 0), Row(1, 0, 6)]


def cases() -> Iterator[ExtractHiddenStates]:
    """Yield batches with K of 0 and 1; the last one has more rows than a program handles."""
    for rows, k, num_proposed in ((ROWS[1:], 0, 0), (ROWS, 1, 0), (ROWS, 1, 1), (ROWS * 43, 1, 1)):
        made = batch(rows, k, block_size=3, vocab_size=33, padding=1, seed=num_proposed)
        yield ExtractHiddenStates(
            hidden=made.words(made.num_tokens),
            slots=made.slots,
            next_tokens=np.where(made.is_real, made.rng.integers(0, 33, made.num_rows), 0),
            valid=np.arange(made.num_rows)[::-1] % 3,
            drafter_kv=made.cache(),
            draft_tokens=integers(made.num_rows * k),
            num_speculative_tokens=k,
            num_proposed=num_proposed,
        )
