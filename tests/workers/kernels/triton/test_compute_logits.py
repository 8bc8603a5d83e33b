"""The Triton kernel of the logits writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.compute_logits import vectorised as definition
from workers.kernels.compute_logits.triton import compute_logits


@pytest.mark.parametrize(
    ("num_rows", "k", "vocab_size"), [(1, 0, 2), (7, 0, 129), (7, 1, 128), (33, 3, 31), (33, 5, 7), (1, 5, 300)]
)
def test_the_columns_of_every_row_are_the_logits_of_its_last_tokens(num_rows: int, k: int, vocab_size: int) -> None:
    for seed, padding in enumerate((0, 2)):
        batch = case(num_rows, k, 4, padding, seed)
        assert_equal(
            compute_logits,
            definition.compute_logits,
            hidden=batch.words(batch.num_tokens),
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            logits=np.full(batch.num_rows * (1 + k) * vocab_size, np.nan, dtype=np.float32),
            num_speculative_tokens=k,
            vocab_size=vocab_size,
        )


def test_a_row_that_ends_before_the_first_token_or_past_the_last_takes_that_token() -> None:
    rows = np.zeros(3, dtype=np.int64)
    assert_equal(
        compute_logits,
        definition.compute_logits,
        hidden=np.arange(7, dtype=np.uint64),
        query_start=np.array([0, 3, 7]),
        num_scheduled=np.array([0, 1, 2]),
        num_drafts=rows,
        logits=np.full(15, np.nan, dtype=np.float32),
        num_speculative_tokens=0,
        vocab_size=5,
    )
