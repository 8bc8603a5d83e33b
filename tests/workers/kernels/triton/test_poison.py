"""The Triton kernel that poisons blocks writes what its definition does."""

import numpy as np
import pytest

from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels import poison as definition
from workers.kernels.triton.poison import poison


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
