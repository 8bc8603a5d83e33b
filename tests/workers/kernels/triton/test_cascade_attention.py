"""The Triton kernel of cascade attention writes what its definition does, and what attention does."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import assert_equal, launch
from workers.kernels.attention.triton import attention
from workers.kernels.cascade_attention import vectorised as definition
from workers.kernels.cascade_attention.triton import cascade_attention


def arguments_of(batch: Case, num_common: int) -> dict[str, Any]:
    """Return a call in which every row begins with the same blocks, and every token lies behind them."""
    table = batch.block_table.reshape(batch.num_rows, batch.max_blocks).copy()
    table[: batch.num_real, num_common:] = table[: batch.num_real, : batch.max_blocks - num_common]
    table[: batch.num_real, :num_common] = batch.rng.integers(0, batch.num_blocks, num_common)
    shift = np.where(batch.token_row >= 0, num_common * batch.block_size, 0)
    return {
        "kv": batch.words(batch.num_blocks * batch.block_size),
        "block_table": table.ravel(),
        "token_row": batch.token_row,
        "positions": batch.positions + shift,
        "hidden": batch.words(batch.num_tokens),
        "output": batch.words(batch.num_tokens),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_blocks_max": batch.num_blocks_max + num_common,
        "num_common_blocks": num_common,
    }


@pytest.mark.parametrize(
    ("num_rows", "block_size", "num_common"), [(1, 1, 1), (7, 4, 0), (33, 7, 2), (7, 1, 70), (7, 7, 19)]
)
def test_the_common_blocks_and_the_rest_of_a_row_are_seen_once_each(
    num_rows: int, block_size: int, num_common: int
) -> None:
    batch = case(num_rows, 3, block_size, 2, more_blocks=num_common)
    arguments = arguments_of(batch, num_common)
    found = assert_equal(cascade_attention, definition.cascade_attention, **arguments)
    del arguments["num_common_blocks"]
    for name, values in launch(attention, **arguments).items():
        np.testing.assert_array_equal(found[name], values, name)
