"""The ops after the logits: verification, counts, and each row's next input token."""

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    call,
    int_poison,
    integers,
)
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.rejection_sample.numpy import rejection_sample
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN

V = 5


@pytest.mark.parametrize("nothing", [[np.nan] * V, [-np.inf] * V, [1, np.nan, 3, -np.inf, 0]])
def test_column_without_largest_logit_ends_the_row(nothing: list[float]) -> None:
    logits = np.tile(np.array([0, 9, 1, -np.inf, 2], dtype=np.float32), (3, 3, 1))
    for row in range(3):
        logits[row, row] = nothing
    sampled = int_poison(9)
    fields = [np.array(values) for values in ([3] * 3, [2] * 3, [0] * 3)]
    # Draft tokens that were not proposed are not tokens either.
    drafts = np.array([NO_DRAFT, 1, 1, NO_DRAFT, 1, 1])
    rejection_sample(RejectionSample(logits.ravel(), drafts, fields[0], fields[1], fields[2], sampled, 2, V))
    assert sampled.tolist() == [NO_TOKEN] * 3 + [1] + [NO_TOKEN] * 2 + [1, 1, NO_TOKEN]


def one_row(logits: list[list[float]], drafts: list[int], n: int, invalid: int = 0) -> list[int]:
    """Sample one row with all its draft tokens scheduled."""
    found = call(
        rejection_sample,
        logits=np.array(logits, dtype=np.float32).ravel(),
        scheduled_drafts=integers(drafts),
        num_scheduled=integers([n]),
        num_drafts=integers([len(drafts)]),
        invalid=integers([invalid]),
        sampled=int_poison(1 + len(drafts)),
        num_speculative_tokens=len(drafts),
        vocab_size=len(logits[0]),
    )
    return [int(token) for token in found["sampled"]]


def test_tie_selects_the_lowest_token_id() -> None:
    assert one_row([[1, 2, 2], [3, 3, 3]], [1], n=2) == [1, 0]
    assert one_row([[1, 2, 2], [3, 3, 3]], [2], n=2) == [1, NO_TOKEN]
    assert one_row([[0, 0, 0]], [], n=1) == [0]


def test_no_draft_is_never_accepted() -> None:
    assert one_row([[5, 0], [0, 5], [5, 0]], [NO_DRAFT, 1], n=3) == [0, NO_TOKEN, NO_TOKEN]


def test_correct_draft_after_a_rejected_one_is_not_accepted() -> None:
    assert one_row([[5, 0], [0, 5], [5, 0]], [1, 1], n=3) == [0, NO_TOKEN, NO_TOKEN]
    assert one_row([[5, 0], [0, 5], [5, 0]], [0, 1], n=3) == [0, 1, 0]


def test_invalid_or_empty_row_samples_nothing() -> None:
    assert one_row([[5, 0], [0, 5]], [0], n=2, invalid=1) == [NO_TOKEN, NO_TOKEN]
    assert one_row([[5, 0]], [], n=0) == [NO_TOKEN]
