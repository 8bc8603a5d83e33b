"""The ops that lay out a step: counts, positions, slots, token ids, copies, poison."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    INT_POISON,
    MAX_BLOCKS,
    MAX_MODEL_LEN,
    VOCAB_SIZE,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    int_poison,
    integers,
    word_poison,
    words,
)
from workers.kernels import copies
from workers.kernels.correct_num_computed import correct_num_computed
from workers.kernels.gather_input_ids import gather_input_ids
from workers.kernels.poison import poison
from workers.kernels.positions_and_lengths import positions_and_lengths
from workers.kernels.signature import NO_DRAFT, NO_PREVIOUS_ROW, PAD_SLOT, POISON, UNKNOWN_TOKEN
from workers.kernels.slot_mapping import slot_mapping


def previous_rows(batch: Batch) -> list[int]:
    """Return a row of the step before for about three of four real rows; the last row of all belongs to nobody."""
    places = batch.rng.permutation(batch.num_rows + 1).tolist()
    return [place if batch.rng.integers(4) else NO_PREVIOUS_ROW for place in places[: len(batch.rows)]]


def correction(batch: Batch) -> tuple[dict[str, Any], list[int]]:
    """Return arguments of correct_num_computed, poisoned where nothing may be read, and the true counts."""
    rows_max = batch.num_rows + 2
    previous = previous_rows(batch)
    fields = {
        name: int_poison(rows_max) for name in ("prev_num_scheduled", "prev_num_drafts", "prev_valid", "num_computed")
    }
    host = int_poison(batch.num_rows)
    host[len(batch.rows) :] = 0
    expected = []
    for row, before in enumerate(previous):
        if before == NO_PREVIOUS_ROW:
            host[row] = batch.rows[row].computed
            expected.append(batch.rows[row].computed)
            continue
        d = int(batch.rng.integers(batch.k + 1))
        n, valid = d + int(batch.rng.integers(1, 5)), int(batch.rng.integers(d + 2))
        computed = int(batch.rng.integers(0, 30))
        for name, value in zip(fields, (n, d, valid, computed), strict=True):
            fields[name][before] = value
        expected.append(computed + n - d - 1 + valid)
    arguments = {
        "prev_position": batch.field(previous, NO_PREVIOUS_ROW),
        "prev_num_scheduled": fields["prev_num_scheduled"],
        "prev_num_drafts": fields["prev_num_drafts"],
        "computed_host": host,
        "prev_valid": fields["prev_valid"],
        "num_computed": fields["num_computed"],
        "num_rows": batch.num_rows,
    }
    return arguments, [*expected, *[0] * (batch.num_rows - len(batch.rows))]


@each_shape
def test_a_sampled_row_takes_its_true_count_and_any_other_the_hosts(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        arguments, expected = correction(batch)
        found = call(correct_num_computed, **arguments)["num_computed"]
        assert found[: batch.num_rows].tolist() == expected
        assert found[batch.num_rows :].tolist() == arguments["num_computed"][batch.num_rows :].tolist()
        indexed = ("prev_num_scheduled", "prev_num_drafts", "prev_valid", "num_computed")
        assert_pad_never_indexes(correct_num_computed, arguments, *indexed)


def test_rows_that_change_places_are_all_read_before_one_is_written() -> None:
    found = call(
        correct_num_computed,
        prev_position=integers([1, 0]),
        prev_num_scheduled=integers([1, 1]),
        prev_num_drafts=integers([0, 0]),
        computed_host=int_poison(2),
        prev_valid=integers([1, 1]),
        num_computed=integers([10, 20]),
        num_rows=2,
    )
    assert found["num_computed"].tolist() == [21, 11]


def test_the_true_count_is_that_of_every_number_of_drafts_and_valid_tokens() -> None:
    for extra, d in product(range(3), range(4)):
        for valid in range(d + 2):
            found = call(
                correct_num_computed,
                prev_position=integers([0]),
                prev_num_scheduled=integers([extra + 1 + d]),
                prev_num_drafts=integers([d]),
                computed_host=int_poison(1),
                prev_valid=integers([valid]),
                num_computed=integers([7]),
                num_rows=1,
            )
            # The tokens before the one that is verified first are computed whatever was sampled.
            assert found["num_computed"].tolist() == [7 + extra + valid]


@each_shape
def test_tokens_are_numbered_from_the_computed_count_and_padding_is_zero(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        arguments = {
            "num_computed": batch.num_computed,
            "query_start": batch.query_start,
            "num_scheduled": batch.num_scheduled,
            "token_row": batch.token_row,
            "positions": int_poison(batch.num_tokens),
            "seq_lens": int_poison(batch.num_rows),
            "num_tokens": batch.num_tokens,
        }
        found = call(positions_and_lengths, **arguments)
        positions = [0] * batch.num_tokens
        for row, offset, token in batch.tokens():
            positions[token] = batch.rows[row].computed + offset
        assert found["positions"].tolist() == positions
        assert found["seq_lens"].tolist() == batch.field([row.computed + row.n for row in batch.rows]).tolist()
        if padded:
            assert max(positions) <= MAX_MODEL_LEN - 1
            for name in ("num_computed", "query_start"):
                assert_pad_never_indexes(positions_and_lengths, arguments, name)


@each_shape
def test_a_token_goes_to_the_slot_of_its_block_and_padding_to_none(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        found = call(
            slot_mapping,
            positions=batch.positions,
            token_row=batch.token_row,
            block_table=batch.block_table,
            slots=int_poison(batch.num_tokens),
            block_size=BLOCK_SIZE,
            max_blocks=MAX_BLOCKS,
        )["slots"]
        expected = [PAD_SLOT] * batch.num_tokens
        for row, offset, token in batch.tokens():
            position = batch.rows[row].computed + offset
            block = batch.rows[row].blocks[position // BLOCK_SIZE]
            expected[token] = block * BLOCK_SIZE + position % BLOCK_SIZE
        assert found.tolist() == expected


def test_a_position_that_the_block_table_does_not_cover_has_no_slot() -> None:
    arguments = {
        "positions": integers([0, 5, 6, 23, 24, 400, 0]),
        "token_row": integers([0, 0, 0, 1, 1, 1, -1]),
        "block_table": integers([4, 2, -1, -1, -1, -1, -1, -1, 1, 3, 5, 6, 7, 8, 9, 0]),
        "slots": int_poison(7),
        "block_size": 3,
        "max_blocks": 8,
    }
    found = call(slot_mapping, **arguments)["slots"]
    assert found.tolist() == [12, 8, PAD_SLOT, 2, PAD_SLOT, PAD_SLOT, PAD_SLOT]


def test_a_padding_token_reads_no_block_table() -> None:
    arguments = {
        "positions": integers([4, 0]),
        "token_row": integers([0, -1]),
        "block_table": integers([1, 2, -1, -1]),
        "slots": int_poison(2),
        "block_size": 3,
        "max_blocks": 2,
    }
    assert call(slot_mapping, **arguments)["slots"].tolist() == [7, PAD_SLOT]
    assert_pad_never_indexes(slot_mapping, arguments, "block_table")


def overlay(batch: Batch) -> tuple[dict[str, Any], list[int], list[int]]:
    """Return arguments of gather_input_ids, the expected input ids and the expected scheduled drafts."""
    k, rows_max = batch.k, batch.num_rows + 2
    previous = previous_rows(batch)
    next_tokens, draft_tokens = int_poison(rows_max), int_poison(rows_max * k)
    ids = batch.token_ids()
    unknown = (batch.token_row >= 0) & (batch.rng.integers(0, 3, batch.num_tokens) == 0)
    host_ids = np.where(unknown, UNKNOWN_TOKEN, ids)
    expected = np.where(unknown, 0, ids).tolist()
    drafts = [NO_DRAFT] * (batch.num_rows * k)
    for index, (row, before) in enumerate(zip(batch.rows, previous, strict=True)):
        if before == NO_PREVIOUS_ROW:
            continue
        first = batch.starts[index] + row.first
        next_tokens[before] = expected[first] = int(batch.rng.integers(VOCAB_SIZE))
        for column in range(row.d):
            draft = int(batch.rng.integers(NO_DRAFT, VOCAB_SIZE))
            draft_tokens[before * k + column] = drafts[index * k + column] = draft
            expected[first + 1 + column] = 0 if draft == NO_DRAFT else draft
    arguments = {
        "host_ids": host_ids,
        "next_tokens": next_tokens,
        "draft_tokens": draft_tokens,
        "prev_position": batch.field(previous, NO_PREVIOUS_ROW),
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "input_ids": int_poison(batch.num_tokens),
        "scheduled_drafts": int_poison(batch.num_rows * k),
        "num_speculative_tokens": k,
    }
    return arguments, expected, drafts


@each_shape
def test_a_row_is_fed_the_sampled_token_and_the_drafts_of_its_previous_row(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        arguments, ids, drafts = overlay(batch)
        found = call(gather_input_ids, **arguments)
        assert found["input_ids"].tolist() == ids
        assert found["scheduled_drafts"].tolist() == drafts
        assert_pad_never_indexes(gather_input_ids, arguments, "next_tokens", *(["draft_tokens"] if k else []))


@each_shape
def test_a_batch_in_which_nothing_was_sampled_before_is_fed_what_the_host_knows(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        arguments, _, _ = overlay(batch)
        arguments["prev_position"] = batch.field([], NO_PREVIOUS_ROW)
        found = call(gather_input_ids, **arguments)
        assert found["input_ids"].tolist() == [max(token, 0) for token in arguments["host_ids"].tolist()]
        assert found["scheduled_drafts"].tolist() == [NO_DRAFT] * (batch.num_rows * k)


@pytest.mark.parametrize(
    ("copy", "name"),
    [
        (copies.copy_inputs, "source"),
        (copies.copy_script, "source"),
        (copies.copy_output, "sampled"),
        (copies.copy_counts, "valid"),
        (copies.copy_accepted, "accepted"),
    ],
)
def test_a_copy_copies_everything(copy: Any, name: str) -> None:
    arguments = {name: integers([4, INT_POISON, -1]), "destination": int_poison(3)}
    assert call(copy, **arguments)["destination"].tolist() == [4, INT_POISON, -1]


@pytest.mark.parametrize("block_size", [1, 3])
def test_poison_overwrites_the_listed_blocks_of_both_caches_and_nothing_else(block_size: int) -> None:
    rng = np.random.default_rng(block_size)
    kv, drafter_kv = words(rng, 6 * block_size), words(rng, 6 * block_size)
    for listed in ([], [0], [5], [4, 1, 0]):
        found = call(
            poison,
            blocks=integers([*listed, *int_poison(3)]),
            kv=kv,
            drafter_kv=drafter_kv,
            num_blocks=len(listed),
            block_size=block_size,
        )
        for name, before in (("kv", kv), ("drafter_kv", drafter_kv)):
            expected = [POISON if slot // block_size in listed else before[slot] for slot in range(len(before))]
            assert found[name].tolist() == expected
    assert word_poison(1).tolist() == [POISON]
