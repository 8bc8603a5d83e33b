"""The op between sampling and drafting: what counts, what is kept, and where each row goes on."""

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
)
from workers.kernels.count_sampled.vectorised import count_sampled
from workers.kernels.sentinels import NO_TOKEN


def sampled_counts(batch: Batch) -> list[int]:
    """Return a possible number of valid tokens for each real row: none is rare, a chunk samples one."""
    return [
        1 if row.discard else int(batch.rng.integers(0 if batch.rng.integers(4) == 0 else 1, row.d + 2))
        for row in batch.rows
    ]


def sampled_of(batch: Batch, counts: list[int], fill: int) -> np.ndarray[Any, Any]:
    """Return sampled tokens: the first `count` columns of each row are valid, the rest is `fill`."""
    sampled = np.full((batch.num_rows, 1 + batch.k), NO_TOKEN, dtype=np.int64)
    for index, count in enumerate(counts):
        sampled[index] = fill
        sampled[index, :count] = batch.rng.integers(0, VOCAB_SIZE, count)
    return sampled


def counting(batch: Batch, fill: int) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return arguments, poisoned where nothing may be read, and what is expected; `next_tokens` of real rows only."""
    counts = sampled_counts(batch)
    sampled = sampled_of(batch, counts, fill)
    ids = np.where(batch.token_row >= 0, batch.token_ids(), INT_POISON)
    backup, kept = int_poison(batch.num_rows), [INT_POISON] * batch.num_state_slots
    next_tokens, token_index = [], []
    for index, (row, count) in enumerate(zip(batch.rows, counts, strict=True)):
        kept[row.state_slot] = count
        if row.discard:
            backup[index] = int(batch.rng.integers(VOCAB_SIZE))
            next_tokens.append(int(backup[index]))
        elif count:
            next_tokens.append(int(sampled[index, count - 1]))
        else:
            next_tokens.append(int(ids[batch.starts[index] + row.first]))
        # A token is kept if it was computed before verification, or was verified and found right.
        offsets = [offset for offset in range(row.n) if offset < row.first + max(count, 1)]
        token_index.append(batch.starts[index] + (row.n - 1 if row.discard else offsets[-1]))
    arguments = {
        "sampled": sampled.ravel(),
        "discard": batch.discard,
        "backup": backup,
        "input_ids": ids,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "slot_accepted": int_poison(batch.num_state_slots),
        "accepted": int_poison(batch.num_rows),
        "valid": int_poison(batch.num_rows),
        "next_tokens": int_poison(batch.num_rows),
        "token_index": int_poison(batch.num_rows),
        "width": 1 + batch.k,
        "vocab_size": VOCAB_SIZE,
    }
    expected = {
        "slot_accepted": kept,
        "accepted": batch.field(counts).tolist(),
        "valid": batch.field([0 if row.discard else c for row, c in zip(batch.rows, counts, strict=True)]).tolist(),
        "next_tokens": next_tokens,
        "token_index": batch.field(token_index).tolist(),
    }
    return arguments, expected


@each_shape
@pytest.mark.parametrize("fill", [NO_TOKEN, VOCAB_SIZE])
def test_a_row_keeps_its_count_with_its_state_slot_and_goes_on_from_its_last_valid_token(
    num_rows: int, k: int, uniform: bool, padded: bool, fill: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        arguments, expected = counting(batch, fill)
        found = {name: values.tolist() for name, values in call(count_sampled, **arguments).items()}
        found["next_tokens"] = found["next_tokens"][: len(batch.rows)]
        assert found == expected
        assert_pad_never_indexes(count_sampled, arguments, "slot_accepted")
