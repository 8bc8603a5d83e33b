"""The op before the model: corrected counts, positions, slots and token ids of moved rows."""

from itertools import product
from typing import Any

import numpy as np

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    VOCAB_SIZE,
    Batch,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
)
from workers.kernels.prepare_inputs.numpy import prepare_inputs
from workers.kernels.sentinels import NO_DRAFT, NO_PREVIOUS_ROW, UNKNOWN_TOKEN

BY_PREVIOUS_ROW = ("prev_num_scheduled", "prev_num_drafts", "prev_num_computed", "prev_valid", "next_tokens")


def previous_rows(batch: Batch) -> list[int]:
    """Return a previous row for about three of four rows; the last row of all is unused."""
    places = batch.rng.permutation(batch.num_rows + 1).tolist()
    return [
        place if row.computed and batch.rng.integers(4) else NO_PREVIOUS_ROW
        for place, row in zip(places, batch.rows, strict=False)
    ]


def inputs_of(batch: Batch, previous: list[int]) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return arguments, poisoned where reads are forbidden, and the expected results."""
    k, rows_max = batch.k, batch.num_rows + 2
    fields = {name: int_poison(rows_max) for name in BY_PREVIOUS_ROW}
    draft_tokens, slot_accepted = int_poison(rows_max * k), int_poison(batch.num_state_slots)
    unknown = (batch.token_row >= 0) & (batch.rng.integers(0, 3, batch.num_tokens) == 0)
    ids = np.where(unknown, UNKNOWN_TOKEN, batch.token_ids())
    expected_ids, drafts, accepted = np.maximum(ids, 0).tolist(), [NO_DRAFT] * (batch.num_rows * k), []
    host = int_poison(batch.num_rows)
    host[len(batch.rows) :] = 0
    for index, (row, before) in enumerate(zip(batch.rows, previous, strict=True)):
        slot_accepted[row.state_slot] = int(batch.rng.integers(k + 2))
        accepted.append(int(slot_accepted[row.state_slot]))
        if before == NO_PREVIOUS_ROW:
            host[index] = row.computed
            continue
        d, extra = int(batch.rng.integers(k + 1)), int(batch.rng.integers(4))
        valid = int(batch.rng.integers(min(d + 1, row.computed) + 1))
        extra = min(extra, row.computed - valid)
        token = int(batch.rng.integers(VOCAB_SIZE))
        for name, value in zip(
            BY_PREVIOUS_ROW, (extra + 1 + d, d, row.computed - extra - valid, valid, token), strict=True
        ):
            fields[name][before] = value
        first = batch.starts[index] + row.first
        expected_ids[first] = token
        for column in range(row.d):
            draft = int(batch.rng.integers(NO_DRAFT, VOCAB_SIZE))
            draft_tokens[before * k + column] = drafts[index * k + column] = draft
            expected_ids[first + 1 + column] = max(draft, 0)
    arguments = {
        "prev_position": batch.field(previous, NO_PREVIOUS_ROW),
        **fields,
        "draft_tokens": draft_tokens,
        "slot_accepted": slot_accepted,
        "computed_host": host,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "host_ids": ids,
        "token_row": batch.token_row,
        "block_table": batch.block_table,
        "num_computed": int_poison(batch.num_rows),
        "seq_lens": int_poison(batch.num_rows),
        "accepted": int_poison(batch.num_rows),
        "positions": int_poison(batch.num_tokens),
        "slots": int_poison(batch.num_tokens),
        "input_ids": int_poison(batch.num_tokens),
        "scheduled_drafts": int_poison(batch.num_rows * k),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_speculative_tokens": k,
        "vocab_size": VOCAB_SIZE,
    }
    expected = {
        "num_computed": batch.num_computed.tolist(),
        "seq_lens": batch.field([row.computed + row.n for row in batch.rows]).tolist(),
        "accepted": batch.field(accepted).tolist(),
        "positions": batch.positions.tolist(),
        "slots": batch.slots.tolist(),
        "input_ids": expected_ids,
        "scheduled_drafts": drafts,
    }
    return arguments, expected


def permuted(arguments: dict[str, Any], order: list[int]) -> dict[str, Any]:
    """Return arguments with the rows of the previous step in another order."""
    k = arguments["num_speculative_tokens"]
    rows = {name: arguments[name].reshape(-1, k) for name in ("draft_tokens",) if k}
    rows |= {name: arguments[name] for name in BY_PREVIOUS_ROW}
    moved: dict[str, Any] = {}
    for name, values in rows.items():
        moved[name] = np.empty_like(values)
        moved[name][order] = values
        moved[name] = moved[name].ravel()
    previous = arguments["prev_position"]
    moved["prev_position"] = np.where(previous >= 0, integers(order)[previous], previous)
    return {**arguments, **moved}


@each_shape
def test_prepare_inputs_is_independent_of_previous_row_order(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    drawn = list(batches(num_rows, k, uniform, padded))
    assert drawn
    for batch in drawn:
        arguments, expected = inputs_of(batch, previous_rows(batch))
        order = batch.rng.permutation(batch.num_rows + 2).tolist()
        found = call(prepare_inputs, **permuted(arguments, order))
        assert {name: values.tolist() for name, values in found.items()} == expected


def test_prepare_inputs_corrects_counts_for_all_drafts_and_results() -> None:
    arguments, _ = inputs_of(next(iter(batches(num_rows=1, k=3, uniform=False, padded=False))), [0])
    for extra, d in product(range(3), range(4)):
        for valid in range(d + 2):
            for name, value in zip(BY_PREVIOUS_ROW, (extra + 1 + d, d, 7, valid, 0), strict=True):
                arguments[name][0] = value
            # The tokens before the first token to verify are computed in any case.
            assert call(prepare_inputs, **arguments)["num_computed"].tolist() == [7 + extra + valid]
