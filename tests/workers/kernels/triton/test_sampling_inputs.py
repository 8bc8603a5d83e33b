"""The Triton kernel that prepares a step's sampling writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.sampling_inputs import vectorised as definition
from workers.kernels.sampling_inputs.triton import sampling_inputs


@pytest.mark.parametrize(("num_rows", "k"), [(1, 0), (1, 1), (7, 3), (33, 8)])
def test_numbers_come_out_of_their_bits_and_positions_follow_the_corrected_counts(num_rows: int, k: int) -> None:
    for seed, padding in enumerate((0, 3)):
        batch = case(num_rows, k, padding=padding, seed=seed)
        rng, rows = batch.rng, batch.num_rows
        temperature, top_p = (rng.random(rows).astype(np.float32) * scale for scale in (np.float32(1 << 23), 1))
        steps = rng.integers(0, 65, k)
        found = assert_equal(
            sampling_inputs,
            definition.sampling_inputs,
            temperature_bits=temperature.view(np.int32).astype(np.int64),
            top_p_bits=top_p.view(np.int32).astype(np.int64),
            rates_in_steps=steps,
            num_computed=batch.num_computed,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            temperature=np.full(rows, np.nan, dtype=np.float32),
            top_p=np.full(rows, np.nan, dtype=np.float32),
            rates=np.full(k, np.nan, dtype=np.float32),
            positions=batch.integers(rows),
            floors=np.full(rows * (1 + k), np.nan, dtype=np.float32),
            num_speculative_tokens=k,
        )
        np.testing.assert_array_equal(found["temperature"], temperature)
        np.testing.assert_array_equal(found["rates"] * 64, steps)
        assert (found["positions"] == batch.num_computed + batch.num_scheduled - batch.num_drafts).all()
