"""The two Triton kernels that keep the books of a step write what their definitions do, wherever rows were before."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.count_sampled import vectorised as count_sampled
from workers.kernels.count_sampled.triton import count_sampled as count_sampled_twin
from workers.kernels.prepare_inputs import vectorised as prepare_inputs
from workers.kernels.prepare_inputs.triton import prepare_inputs as prepare_inputs_twin
from workers.kernels.sentinels import NO_DRAFT, NO_PREVIOUS_ROW, NO_TOKEN, UNKNOWN_TOKEN

VOCAB_SIZE = 129
SHAPES = [(1, 0, 1), (7, 3, 4), (33, 5, 7), (33, 1, 1)]


def inputs_of(batch: Case) -> dict[str, Any]:
    """Return arguments of prepare_inputs: three of four started rows were sampled at some row of the step before."""
    rng, k, rows_max = batch.rng, batch.k, batch.num_rows + 3
    previous = rng.permutation(rows_max)[: batch.num_rows]
    sampled = (rng.integers(4, size=batch.num_rows) > 0) & (batch.num_computed > 0)
    prev_position = np.where(sampled, previous, NO_PREVIOUS_ROW)
    fields = {name: batch.integers(rows_max) for name in ("scheduled", "drafts", "computed", "valid", "next")}
    drafts = batch.integers(rows_max * k).reshape(rows_max, k)
    for row in np.nonzero(sampled)[0]:
        before, d = previous[row], int(rng.integers(k + 1))
        extra = int(rng.integers(3))
        valid = int(rng.integers(d + 2))
        values = (1 + d + extra, d, batch.num_computed[row] - extra - valid, valid, rng.integers(VOCAB_SIZE))
        for name, value in zip(fields, values, strict=True):
            fields[name][before] = value
        drafts[before] = rng.integers(NO_DRAFT, VOCAB_SIZE, k)
    slot_accepted = batch.integers(batch.num_state_slots)
    slots = batch.state_slot[batch.state_slot >= 0]
    slot_accepted[slots] = rng.integers(0, k + 2, len(slots))
    unknown = rng.integers(3, size=batch.num_tokens) == 0
    return {
        "prev_position": prev_position,
        "prev_num_scheduled": fields["scheduled"],
        "prev_num_drafts": fields["drafts"],
        "prev_num_computed": fields["computed"],
        "prev_valid": fields["valid"],
        "next_tokens": fields["next"],
        "draft_tokens": drafts.ravel(),
        "slot_accepted": slot_accepted,
        "computed_host": np.where(sampled, batch.integers(batch.num_rows), batch.num_computed),
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "host_ids": np.where(unknown, UNKNOWN_TOKEN, batch.tokens(VOCAB_SIZE)),
        "token_row": batch.token_row,
        "block_table": batch.block_table,
        "num_computed": batch.integers(batch.num_rows),
        "seq_lens": batch.integers(batch.num_rows),
        "accepted": batch.integers(batch.num_rows),
        "positions": batch.integers(batch.num_tokens),
        "slots": batch.integers(batch.num_tokens),
        "input_ids": batch.integers(batch.num_tokens),
        "scheduled_drafts": batch.integers(batch.num_rows * k),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_speculative_tokens": k,
    }


@pytest.mark.parametrize(("num_rows", "k", "block_size"), SHAPES)
def test_inputs_are_corrected_laid_out_and_overlaid_as_defined(num_rows: int, k: int, block_size: int) -> None:
    for seed, padding in enumerate((0, 3)):
        batch = case(num_rows, k, block_size, padding, seed)
        found = assert_equal(prepare_inputs_twin, prepare_inputs.prepare_inputs, **inputs_of(batch))
        np.testing.assert_array_equal(found["num_computed"], batch.num_computed)
        np.testing.assert_array_equal(found["positions"], batch.positions)
        np.testing.assert_array_equal(found["slots"], batch.slots)


def test_a_chunk_longer_than_a_block_of_tokens_is_laid_out_to_its_end() -> None:
    length, block_size = 301, 7
    max_blocks = length // block_size + 2
    arguments = inputs_of(case(1, 3, block_size, 0, 5))
    tokens = np.arange(length, dtype=np.int64)
    arguments |= {
        "num_scheduled": np.array([length]),
        "num_drafts": np.array([0]),
        "host_ids": tokens,
        "token_row": tokens * 0,
        "block_table": np.arange(max_blocks)[::-1].copy(),
        "max_blocks": max_blocks,
        **dict.fromkeys(("positions", "slots", "input_ids"), tokens - 77),
    }
    assert_equal(prepare_inputs_twin, prepare_inputs.prepare_inputs, **arguments)


def test_a_position_past_the_block_table_has_no_slot() -> None:
    arguments = inputs_of(case(7, 3, 4, 2, 0))
    arguments["block_table"] = np.full(9, 5)
    arguments["max_blocks"] = 1
    found = assert_equal(prepare_inputs_twin, prepare_inputs.prepare_inputs, **arguments)
    assert (found["slots"][found["positions"] >= 4] == -1).all()


@pytest.mark.parametrize(("num_rows", "k", "block_size"), SHAPES)
@pytest.mark.parametrize("fill", [NO_TOKEN, VOCAB_SIZE])
def test_what_was_sampled_is_counted_and_gone_on_from_as_defined(
    num_rows: int, k: int, block_size: int, fill: int
) -> None:
    for seed, padding in enumerate((0, 3)):
        batch = case(num_rows, k, block_size, padding, seed)
        counts = np.where(batch.num_scheduled > 0, batch.rng.integers(0, batch.num_drafts + 2), 0)
        tokens = batch.rng.integers(0, VOCAB_SIZE, (batch.num_rows, 1 + k))
        sampled = np.where(np.arange(1 + k) < counts[:, None], tokens, fill)
        discard = (batch.num_drafts == 0) & (counts < 2) & (batch.rng.integers(2, size=batch.num_rows) > 0)
        assert_equal(
            count_sampled_twin,
            count_sampled.count_sampled,
            sampled=sampled.ravel(),
            discard=discard.astype(np.int64),
            backup=np.where(discard, batch.rng.integers(VOCAB_SIZE, size=batch.num_rows), -1),
            input_ids=batch.tokens(VOCAB_SIZE),
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            state_slot=batch.state_slot,
            slot_accepted=batch.integers(batch.num_state_slots),
            accepted=batch.integers(batch.num_rows),
            valid=batch.integers(batch.num_rows),
            next_tokens=batch.integers(batch.num_rows),
            token_index=batch.integers(batch.num_rows),
            width=1 + k,
            vocab_size=VOCAB_SIZE,
        )
