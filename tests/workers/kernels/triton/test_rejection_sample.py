"""The Triton verification kernel finds the largest logit across several vocabulary blocks."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Array
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.rejection_sample import numpy as definition
from workers.kernels.rejection_sample.triton import rejection_sample
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN


def test_lowest_of_equal_logits_wins_across_vocabulary_blocks() -> None:
    logits = np.zeros((3, 3000), dtype=np.float32)
    logits[0, [1023, 1024, 2999]] = 1
    logits[1, [2048, 2999]] = 1
    logits[2] = -np.inf
    logits[2, 2047] = np.finfo(np.float32).min
    found = verify(logits, np.zeros((3, 0), dtype=np.int64))
    assert found.tolist() == [1023, 2048, 2047]


@pytest.mark.parametrize("vocab_size", [2, 129, 3000])
def test_row_ends_before_nan_inf_or_all_minus_inf_logits(
    vocab_size: int,
) -> None:
    rng = np.random.default_rng(vocab_size)
    logits = rng.integers(0, 9, (33, 4, vocab_size)).astype(np.float32)
    drafts = logits[:, :3].argmax(axis=2)
    for row in range(1, 33):
        column = row % 4
        logits[row, column] = -np.inf if row % 3 else logits[row, column]
        if row % 3 == 0:
            logits[row, column, rng.integers(vocab_size)] = np.nan
        # The draft token is the NO_DRAFT that an undefined target resembles, or argmax of the row.
        if column < 3:
            drafts[row, column] = NO_DRAFT if row % 2 else logits[row, column].argmax()
    found = verify(logits.reshape(-1, vocab_size), drafts).reshape(33, 4)
    assert [(row != NO_TOKEN).sum() for row in found] == [4, *(row % 4 for row in range(1, 33))]


def verify(logits: Array, drafts: Array) -> Array:
    """Return both results for real rows in which every column is verified."""
    num_rows, k = drafts.shape
    return assert_equal(
        rejection_sample,
        definition.rejection_sample,
        logits=logits.ravel(),
        scheduled_drafts=drafts.ravel(),
        num_scheduled=np.full(num_rows, 1 + k),
        num_drafts=np.full(num_rows, k),
        invalid=np.zeros(num_rows, dtype=np.int64),
        sampled=np.full(num_rows * (1 + k), 77),
        num_speculative_tokens=k,
        vocab_size=logits.shape[-1],
    )["sampled"]
