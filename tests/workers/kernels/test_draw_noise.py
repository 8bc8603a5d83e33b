"""Noise is Philox4x32-10 of seed, position and stream; no two purposes share a number."""

import numpy as np
import pytest

from scenarios.draw import philox4x32
from workers.kernels.draw_noise.definition import ACCEPT_STREAM, DRAFT_STREAM, SELECT_STREAM, DrawNoise, philox
from workers.kernels.draw_noise.numpy import draw_noise


def test_numpy_philox_equals_schedule_philox() -> None:
    seeds, positions = [0, 1, (1 << 64) - 1, 0x1234_5678_9ABC_DEF0], [0, 7, (1 << 40) + 3, (1 << 63) - 1]
    for stream in (DRAFT_STREAM, ACCEPT_STREAM, SELECT_STREAM):
        for index, (seed, position) in enumerate(zip(seeds, positions, strict=True)):
            counter = (position & 0xFFFFFFFF, position >> 32, stream, index)
            found = philox(seed, position, stream, index)
            assert found == philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))


def noise_of(positions: list[int], k: int, num_tries: int = 2) -> tuple[np.ndarray, np.ndarray]:
    num_rows = len(positions)
    accept = np.full(num_rows * k, np.nan, dtype=np.float32)
    select = np.full(num_rows * (1 + k) * (1 + num_tries) * 4, np.nan, dtype=np.float32)
    seeds = np.full(num_rows, 5, dtype=np.uint64)
    draw_noise(DrawNoise(seeds, np.array(positions), accept, select, k, num_tries))
    return accept.reshape(num_rows, k), select.reshape(num_rows, 1 + k, 1 + num_tries, 4)


def test_selected_token_depends_on_position_not_column() -> None:
    accept, select = noise_of([10, 11, 12], k=2)
    # The noise that decides about acceptance is used by no other verification.
    assert len(set(accept.ravel().tolist())) == 6
    np.testing.assert_array_equal(select[0, 2], select[2, 0])
    np.testing.assert_array_equal(select[0, 1], select[1, 0])


@pytest.mark.parametrize("k", [0, 3])
def test_noise_is_unique_and_in_the_unit_interval(k: int) -> None:
    accept, select = noise_of([100], k)
    numbers = np.concatenate([accept.ravel(), select.ravel()])
    assert len(set(numbers.tolist())) == len(numbers) == k + (1 + k) * 12
    assert ((numbers >= 0) & (numbers < 1)).all()
