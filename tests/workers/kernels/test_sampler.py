"""The ops behind the logits: verification, counts, and the token each row goes on from."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    INT_POISON,
    VOCAB_SIZE,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
)
from workers.kernels.count_accepted import count_accepted
from workers.kernels.prepare_inputs_padded import prepare_inputs_padded
from workers.kernels.prepare_next_tokens import prepare_next_tokens
from workers.kernels.rejection_sample import rejection_sample
from workers.kernels.signature import NO_DRAFT, NO_TOKEN

V = 5


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


def sampled_counts(batch: Batch) -> list[int]:
    """Return a possible number of valid tokens for each real row: none is rare."""
    return [int(batch.rng.integers(0 if batch.rng.integers(4) == 0 else 1, row.d + 2)) for row in batch.rows]


def sampled_of(batch: Batch, counts: list[int], fill: int = NO_TOKEN) -> np.ndarray[Any, Any]:
    """Return sampled tokens: the first `count` columns of each row are valid, the rest is `fill`."""
    sampled = np.full((batch.num_rows, 1 + batch.k), NO_TOKEN, dtype=np.int64)
    for index, count in enumerate(counts):
        sampled[index] = fill
        sampled[index, :count] = batch.rng.integers(0, VOCAB_SIZE, count)
    return sampled


@each_shape
def test_the_accepted_count_is_the_number_of_valid_columns_and_is_kept_with_the_state_slot(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        counts = sampled_counts(batch)
        arguments = {
            "sampled": sampled_of(batch, counts).ravel(),
            "state_slot": batch.state_slot,
            "accepted": int_poison(batch.num_rows),
            "slot_accepted": int_poison(batch.num_state_slots),
            "width": 1 + k,
        }
        found = call(count_accepted, **arguments)
        assert found["accepted"].tolist() == batch.field(counts).tolist()
        kept = [INT_POISON] * batch.num_state_slots
        for row, count in zip(batch.rows, counts, strict=True):
            kept[row.state_slot] = count
        assert found["slot_accepted"].tolist() == kept
        assert_pad_never_indexes(count_accepted, arguments, "slot_accepted")


@each_shape
@pytest.mark.parametrize("fill", [NO_TOKEN, VOCAB_SIZE])
def test_a_row_goes_on_from_its_last_valid_token_its_backup_or_the_token_to_verify_again(
    num_rows: int, k: int, uniform: bool, padded: bool, fill: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        counts = [1 if row.discard else count for row, count in zip(batch.rows, sampled_counts(batch), strict=True)]
        sampled = sampled_of(batch, counts, fill)
        ids = np.where(batch.token_row >= 0, batch.token_ids(), INT_POISON)
        backup = int_poison(batch.num_rows)
        expected, valid = [], []
        for index, (row, count) in enumerate(zip(batch.rows, counts, strict=True)):
            if row.discard:
                backup[index] = int(batch.rng.integers(VOCAB_SIZE))
                expected.append(int(backup[index]))
            elif count:
                expected.append(int(sampled[index, count - 1]))
            else:
                expected.append(int(ids[batch.starts[index] + row.first]))
            valid.append(0 if row.discard else count)
        found = call(
            prepare_next_tokens,
            sampled=sampled.ravel(),
            discard=batch.discard,
            backup=backup,
            input_ids=ids,
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            next_tokens=int_poison(batch.num_rows),
            valid=int_poison(batch.num_rows),
            width=1 + k,
            vocab_size=VOCAB_SIZE,
        )
        assert found["next_tokens"][: len(batch.rows)].tolist() == expected
        assert found["valid"].tolist() == batch.field(valid).tolist()


@each_shape
def test_the_kept_token_of_a_row_is_the_last_before_the_first_rejected_draft(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        counts = [0 if row.discard else count for row, count in zip(batch.rows, sampled_counts(batch), strict=True)]
        expected = []
        for index, (row, count) in enumerate(zip(batch.rows, counts, strict=True)):
            # A token is kept if it was computed before verification, or was verified and found right.
            kept = [offset for offset in range(row.n) if offset < row.first + max(count, 1)]
            expected.append(batch.starts[index] + (row.n - 1 if row.discard else kept[-1]))
        found = call(
            prepare_inputs_padded,
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            discard=batch.discard,
            valid=batch.field(counts),
            token_index=int_poison(batch.num_rows),
        )
        assert found["token_index"].tolist() == batch.field(expected).tolist()
