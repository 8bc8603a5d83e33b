"""The Triton kernel that keeps states with blocks writes what its definition does."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import assert_equal, launch
from workers.kernels.sentinels import PAD_BLOCK
from workers.kernels.state_copy import vectorised as definition
from workers.kernels.state_copy.triton import state_copy


def arguments_of(batch: Case, width: int) -> dict[str, Any]:
    return {
        "num_computed": batch.num_computed,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "accepted": np.where(batch.num_scheduled > 0, batch.rng.integers(0, 2 + batch.num_drafts), 0),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "states": batch.words(batch.num_state_slots * (2 + batch.k)),
        "conv": batch.words(batch.num_state_slots * (width + batch.k)),
        "block_states": batch.words(batch.num_blocks),
        "block_windows": batch.words(batch.num_blocks * (width - 1)),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_speculative_tokens": batch.k,
        "conv_width": width,
    }


@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize(
    ("num_rows", "k", "block_size", "padding"), [(1, 0, 4, 0), (7, 5, 1, 1), (65, 3, 7, 3), (33, 5, 4, 2)]
)
def test_a_block_keeps_the_state_after_the_last_accepted_token_in_it(
    num_rows: int, k: int, block_size: int, padding: int, width: int
) -> None:
    for seed in range(3):
        batch = case(num_rows, k, block_size, padding, seed)
        assert_equal(state_copy, definition.state_copy, **arguments_of(batch, width))


def test_a_block_that_a_row_does_not_have_keeps_nothing() -> None:
    arguments = arguments_of(case(7, 3, 1), 3)
    arguments["block_table"] = np.full(len(arguments["block_table"]), PAD_BLOCK)
    for name, values in launch(state_copy, **arguments).items():
        np.testing.assert_array_equal(values, arguments[name], name)


def test_a_run_that_ends_past_the_block_table_leaves_states_in_the_blocks_of_the_table_alone() -> None:
    batch = case(7, 5, 4, 0)
    arguments = arguments_of(batch, 3)
    arguments["num_computed"] = np.full(7, batch.max_model_len) - batch.num_scheduled + batch.num_drafts
    arguments["accepted"] = 1 + batch.num_drafts
    arguments["block_table"] = batch.rng.permutation(7 * batch.max_blocks)
    arguments["block_states"] = batch.words(7 * batch.max_blocks)
    arguments["block_windows"] = batch.words(14 * batch.max_blocks)
    assert_equal(state_copy, definition.state_copy, **arguments)
