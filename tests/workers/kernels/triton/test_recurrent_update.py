"""The Triton kernel of the recurrent layer writes what its definition does, and less: columns nobody reads are left."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import INT_POISON, Array, Case, case
from tests.workers.kernels.triton.launches import define, launch
from workers.kernels.recurrent_update import vectorised as definition
from workers.kernels.recurrent_update.triton import recurrent_update


def arguments_of(batch: Case, width: int) -> dict[str, Any]:
    accepted = batch.rng.integers(0, 2 + batch.k, batch.num_rows)
    return {
        "hidden": batch.words(batch.num_tokens),
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "state_slot": batch.state_slot,
        "accepted": np.where(batch.num_computed > 0, accepted, 0),
        "states": batch.words(batch.num_state_slots * (2 + batch.k)),
        "conv": batch.words(batch.num_state_slots * (width + batch.k)),
        "num_queries_max": int(batch.num_scheduled.max()),
        "num_speculative_tokens": batch.k,
        "conv_width": width,
    }


def written(batch: Case, per_slot: int, first: int) -> Array:
    """Return which columns a step keeps: of the slot of a row with d drafts, the first `first + d`."""
    kept = np.zeros((batch.num_state_slots, per_slot), dtype=bool)
    slots = batch.state_slot[: batch.num_real]
    kept[slots] = np.arange(per_slot) < first + batch.num_drafts[: batch.num_real, None]
    return kept.ravel()


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize(("num_rows", "k", "padding"), [(1, 0, 0), (7, 1, 1), (33, 3, 3), (65, 5, 2)])
def test_each_row_advances_and_keeps_a_state_for_every_verified_position_and_nothing_else_is_written(
    num_rows: int, k: int, padding: int, width: int
) -> None:
    for seed in range(2):
        batch = case(num_rows, k, 4, padding, seed)
        arguments = arguments_of(batch, width)
        expected = define(definition.recurrent_update, **arguments)
        for name, per_slot, first in (("states", 2 + k, 2), ("conv", width + k, width)):
            expected[name] = np.where(written(batch, per_slot, first), expected[name], arguments[name])
        # The count of a row that has computed nothing, and of padding, is no index.
        arguments["accepted"] = np.where(batch.num_computed > 0, arguments["accepted"], INT_POISON)
        found = launch(recurrent_update, **arguments)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values, name)


def test_a_larger_bound_on_the_tokens_of_a_row_changes_nothing() -> None:
    arguments = arguments_of(case(7, 3), 4)
    expected = launch(recurrent_update, **arguments)
    found = launch(recurrent_update, **{**arguments, "num_queries_max": arguments["num_queries_max"] + 5})
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, name)


def test_a_batch_of_padding_alone_changes_nothing() -> None:
    batch = case(3, 1)
    arguments = arguments_of(batch, 3)
    arguments["state_slot"] = np.full(batch.num_rows, -1)
    found = launch(recurrent_update, **arguments)
    for name, values in found.items():
        np.testing.assert_array_equal(values, arguments[name], name)
