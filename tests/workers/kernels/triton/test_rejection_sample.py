"""The Triton kernel that verifies drafts writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels import rejection_sample as definition
from workers.kernels.signature import NO_DRAFT, NO_TOKEN
from workers.kernels.triton.rejection_sample import rejection_sample


@pytest.mark.parametrize(
    ("num_rows", "k", "vocab_size"),
    [(1, 0, 2), (33, 0, 129), (7, 1, 7), (33, 3, 16), (33, 5, 2), (7, 5, 129), (3, 1, 2500)],
)
def test_the_accepted_drafts_and_one_token_more_are_emitted(num_rows: int, k: int, vocab_size: int) -> None:
    lengths = set()
    for seed, padding in enumerate((2, 0)):
        batch = case(num_rows, k, 4, padding, seed)
        rng, rows, width = batch.rng, batch.num_rows, 1 + k
        # Few values, so that nearly every row has its maximum twice.
        logits = rng.integers(0, 5, (rows, width, vocab_size)).astype(np.float32)
        drafts = np.where(rng.random((rows, k)) < 0.8, logits[:, :k].argmax(axis=2), NO_DRAFT)
        drafts = np.where(rng.random((rows, k)) < 0.1, rng.integers(0, vocab_size, (rows, k)), drafts)
        invalid = (rng.random(rows) < 0.1).astype(np.int64)
        found = assert_equal(
            rejection_sample,
            definition.rejection_sample,
            logits=logits.ravel(),
            scheduled_drafts=drafts.ravel(),
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            invalid=invalid,
            sampled=batch.integers(rows * width),
            num_speculative_tokens=k,
            vocab_size=vocab_size,
        )
        lengths |= set((found["sampled"].reshape(rows, width) != NO_TOKEN).sum(axis=1).tolist())
    assert num_rows < 33 or lengths == set(range(width + 1))


def test_the_lowest_of_equal_logits_wins_across_blocks_of_the_vocabulary() -> None:
    logits = np.zeros((3, 3000), dtype=np.float32)
    logits[0, [1023, 1024, 2999]] = 1
    logits[1, [2048, 2999]] = 1
    logits[2] = -np.inf
    found = assert_equal(
        rejection_sample,
        definition.rejection_sample,
        logits=logits.ravel(),
        scheduled_drafts=np.zeros(0, dtype=np.int64),
        num_scheduled=np.ones(3, dtype=np.int64),
        num_drafts=np.zeros(3, dtype=np.int64),
        invalid=np.zeros(3, dtype=np.int64),
        sampled=np.full(3, 77, dtype=np.int64),
        num_speculative_tokens=0,
        vocab_size=3000,
    )
    assert found["sampled"].tolist() == [1023, 2048, 0]
