"""The ops behind the logits: verification, counts, and the token each row goes on from."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    Batch,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
)
from workers.kernels.rejection_sample.arguments import RejectionSample
from workers.kernels.rejection_sample.vectorised import rejection_sample
from workers.kernels.sentinels import NO_DRAFT, NO_TOKEN

V = 5


@pytest.mark.parametrize("nothing", [[np.nan] * V, [-np.inf] * V, [1, np.nan, 3, -np.inf, 0]])
def test_a_column_without_a_largest_logit_yields_no_token_and_ends_the_row(nothing: list[float]) -> None:
    logits = np.tile(np.array([0, 9, 1, -np.inf, 2], dtype=np.float32), (3, 3, 1))
    for row in range(3):
        logits[row, row] = nothing
    sampled = int_poison(9)
    fields = [np.array(values) for values in ([3] * 3, [2] * 3, [0] * 3)]
    # Drafts that nobody proposed are no tokens either.
    drafts = np.array([NO_DRAFT, 1, 1, NO_DRAFT, 1, 1])
    rejection_sample(RejectionSample(logits.ravel(), drafts, fields[0], fields[1], fields[2], sampled, 2, V))
    assert sampled.tolist() == [NO_TOKEN] * 3 + [1] + [NO_TOKEN] * 2 + [1, 1, NO_TOKEN]


def lowest_argmax(scores: list[float]) -> int:
    return scores.index(max(scores))


def verification(batch: Batch) -> tuple[dict[str, Any], list[list[int]]]:
    """Return arguments of rejection_sample with many ties, NaN where nothing may be looked at, and what is sampled."""
    k, rng = batch.k, batch.rng
    width = 1 + k
    logits = np.full((batch.num_rows, width, V), np.nan, dtype=np.float32)
    drafts = np.full((batch.num_rows, k), NO_DRAFT, dtype=np.int64)
    invalid = batch.field([int(rng.integers(5) == 0) for _ in batch.rows])
    expected = []
    for index, row in enumerate(batch.rows):
        logits[index, : 1 + row.d] = rng.integers(0, 3, (1 + row.d, V))
        target = [lowest_argmax(scores) for scores in logits[index, : 1 + row.d].tolist()]
        sampled = []
        for column in range(row.d):
            right = bool(rng.integers(4))
            drafts[index, column] = target[column] if right else int(rng.integers(NO_DRAFT, V))
        for column in range(1 + row.d):
            sampled.append(target[column])
            if column < row.d and drafts[index, column] != target[column]:
                break
        expected.append([] if invalid[index] else sampled)
        # What lies behind the drafts would be accepted, were it looked at.
        drafts[index, row.d :] = 0
    arguments = {
        "logits": logits.ravel(),
        "scheduled_drafts": drafts.ravel(),
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "invalid": invalid,
        "sampled": int_poison(batch.num_rows * width),
        "num_speculative_tokens": k,
        "vocab_size": V,
    }
    expected += [[]] * (batch.num_rows - len(batch.rows))
    return arguments, [tokens + [NO_TOKEN] * (width - len(tokens)) for tokens in expected]


@each_shape
def test_drafts_are_accepted_up_to_the_first_that_is_not_the_argmax_and_one_token_follows(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded, 8):
        arguments, expected = verification(batch)
        found = call(rejection_sample, **arguments)["sampled"]
        assert found.reshape(-1, 1 + k).tolist() == expected


def one_row(logits: list[list[float]], drafts: list[int], n: int, invalid: int = 0) -> list[int]:
    """Sample one row whose drafts all are scheduled."""
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


def test_a_tie_goes_to_the_lowest_token_id() -> None:
    assert one_row([[1, 2, 2], [3, 3, 3]], [1], n=2) == [1, 0]
    assert one_row([[1, 2, 2], [3, 3, 3]], [2], n=2) == [1, NO_TOKEN]
    assert one_row([[0, 0, 0]], [], n=1) == [0]


def test_a_draft_that_was_never_proposed_is_never_accepted() -> None:
    assert one_row([[5, 0], [0, 5], [5, 0]], [NO_DRAFT, 1], n=3) == [0, NO_TOKEN, NO_TOKEN]


def test_a_right_draft_behind_a_wrong_one_is_not_accepted() -> None:
    assert one_row([[5, 0], [0, 5], [5, 0]], [1, 1], n=3) == [0, NO_TOKEN, NO_TOKEN]
    assert one_row([[5, 0], [0, 5], [5, 0]], [0, 1], n=3) == [0, 1, 0]


def test_a_row_that_is_marked_invalid_or_has_no_token_samples_nothing() -> None:
    assert one_row([[5, 0], [0, 5]], [0], n=2, invalid=1) == [NO_TOKEN, NO_TOKEN]
    assert one_row([[5, 0]], [], n=0) == [NO_TOKEN]
