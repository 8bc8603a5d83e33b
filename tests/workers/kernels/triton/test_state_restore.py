"""The Triton kernel that restores states writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.state_restore import vectorised as definition
from workers.kernels.state_restore.triton import state_restore


@pytest.mark.parametrize(("num_rows", "k", "padding", "width"), [(1, 0, 0, 2), (7, 3, 1, 3), (33, 5, 3, 4)])
def test_rows_that_join_find_the_state_of_their_block(num_rows: int, k: int, padding: int, width: int) -> None:
    for seed in range(3):
        batch = case(num_rows, k, 4, padding, seed)
        taken = batch.rng.integers(0, batch.num_blocks, batch.num_rows)
        assert_equal(
            state_restore,
            definition.state_restore,
            taken_over=np.where(batch.rng.integers(2, size=batch.num_rows) > 0, taken, -1),
            state_slot=batch.state_slot,
            block_states=batch.words(batch.num_blocks),
            block_windows=batch.words(batch.num_blocks * (width - 1)),
            slot_accepted=batch.integers(batch.num_state_slots),
            states=batch.words(batch.num_state_slots * (2 + k)),
            conv=batch.words(batch.num_state_slots * (width + k)),
            num_speculative_tokens=k,
            conv_width=width,
        )
