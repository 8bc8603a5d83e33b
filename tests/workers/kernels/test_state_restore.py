"""A row that takes a block over finds its state where it reads first."""

from typing import Any

import numpy as np

from tests.workers.kernels.batches import batches, call, each_shape, integers, words
from workers.kernels.sentinels import PAD_BLOCK
from workers.kernels.state_restore.vectorised import state_restore

WIDTH = 4


@each_shape
def test_rows_that_join_have_count_0_and_the_state_of_their_block_and_others_keep_what_they_have(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        slots, per_window = batch.num_state_slots, WIDTH + k
        taken = [int(batch.rng.integers(batch.num_blocks)) if batch.rng.integers(2) else -1 for _ in batch.rows]
        given: dict[str, Any] = {
            "taken_over": batch.field(taken, PAD_BLOCK),
            "state_slot": batch.state_slot,
            "block_states": words(batch.rng, batch.num_blocks),
            "block_windows": words(batch.rng, batch.num_blocks * (WIDTH - 1)),
            "slot_accepted": integers(range(1, slots + 1)),
            "states": words(batch.rng, slots * (2 + k)),
            "conv": words(batch.rng, slots * per_window),
            "num_speculative_tokens": k,
            "conv_width": WIDTH,
        }
        found = call(state_restore, **given)
        counts, states, conv = (given[name].tolist() for name in ("slot_accepted", "states", "conv"))
        for row, block in zip(batch.rows, taken, strict=True):
            if block >= 0:
                counts[row.state_slot] = 0
                states[row.state_slot * (2 + k)] = int(given["block_states"][block])
                for at in range(WIDTH - 1):
                    conv[row.state_slot * per_window + at] = int(given["block_windows"][block * (WIDTH - 1) + at])
        assert found["slot_accepted"].tolist() == counts
        assert found["states"].tolist() == states
        assert found["conv"].tolist() == conv


def test_padding_takes_nothing_over_whatever_it_says() -> None:
    given = {
        "taken_over": integers([0, 0]),
        "state_slot": integers([-1, -1]),
        "block_states": np.arange(2, dtype=np.uint64),
        "block_windows": np.arange(4, dtype=np.uint64),
        "slot_accepted": integers([7, 7]),
        "states": np.full(6, 9, dtype=np.uint64),
        "conv": np.full(8, 9, dtype=np.uint64),
        "num_speculative_tokens": 1,
        "conv_width": 3,
    }
    for name, values in call(state_restore, **given).items():
        np.testing.assert_array_equal(values, given[name])
