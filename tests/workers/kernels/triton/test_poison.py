"""The Triton kernel that poisons blocks writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.poison import vectorised as definition
from workers.kernels.poison.triton import poison, poison_states


@pytest.mark.parametrize("block_size", [1, 4, 7])
@pytest.mark.parametrize("num_blocks", [1, 7, 129])
def test_the_first_blocks_of_the_list_are_poisoned_in_both_caches_and_no_other(
    num_blocks: int, block_size: int
) -> None:
    rng = np.random.default_rng([num_blocks, block_size])
    pool = num_blocks + 5
    assert_equal(
        poison,
        definition.poison,
        blocks=rng.permutation(pool)[: num_blocks + 2],
        kv=rng.integers(0, 1 << 64, pool * block_size, dtype=np.uint64),
        drafter_kv=rng.integers(0, 1 << 64, pool * block_size, dtype=np.uint64),
        num_blocks=num_blocks,
        block_size=block_size,
    )


@pytest.mark.parametrize("window_length", [1, 3])
@pytest.mark.parametrize("num_blocks", [1, 7, 300])
def test_the_states_kept_with_the_first_blocks_of_the_list_are_poisoned_and_no_others(
    num_blocks: int, window_length: int
) -> None:
    rng = np.random.default_rng([num_blocks, window_length])
    pool = num_blocks + 5
    assert_equal(
        poison_states,
        definition.poison_states,
        blocks=rng.permutation(pool)[: num_blocks + 2],
        block_states=rng.integers(0, 1 << 64, pool, dtype=np.uint64),
        block_windows=rng.integers(0, 1 << 64, pool * window_length, dtype=np.uint64),
        num_blocks=num_blocks,
        window_length=window_length,
    )
