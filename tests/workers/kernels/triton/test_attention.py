"""The Triton kernel of attention writes what its definition does."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import assert_equal, launch
from workers.kernels.attention import vectorised as definition
from workers.kernels.attention.triton import attention
from workers.kernels.sentinels import PAD_BLOCK, POISON
from workers.record import model


def arguments_of(batch: Case) -> dict[str, Any]:
    return {
        "kv": batch.words(batch.num_blocks * batch.block_size),
        "block_table": batch.block_table,
        "token_row": batch.token_row,
        "positions": batch.positions,
        "hidden": batch.words(batch.num_tokens),
        "output": batch.words(batch.num_tokens),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_blocks_max": batch.num_blocks_max,
    }


@pytest.mark.parametrize("block_size", [1, 4, 7])
@pytest.mark.parametrize(("num_rows", "k", "padding"), [(1, 0, 0), (7, 3, 1), (33, 5, 3)])
def test_every_token_sees_its_row_up_to_itself_and_padding_has_output_0_and_keeps_its_word(
    num_rows: int, k: int, padding: int, block_size: int
) -> None:
    assert_equal(attention, definition.attention, **arguments_of(case(num_rows, k, block_size, padding)))


@pytest.mark.parametrize("num_blocks", [200, 97])
def test_a_row_longer_than_a_block_of_positions_is_summed_to_its_end(num_blocks: int) -> None:
    rng = np.random.default_rng(num_blocks)
    positions = rng.integers(0, 3 * num_blocks, 7)
    positions[0] = 3 * num_blocks - 1
    assert_equal(
        attention,
        definition.attention,
        kv=rng.integers(0, 1 << 64, 3 * num_blocks, dtype=np.uint64),
        block_table=rng.permutation(num_blocks),
        token_row=np.zeros(7, dtype=np.int64),
        positions=positions,
        hidden=rng.integers(0, 1 << 64, 7, dtype=np.uint64),
        output=rng.integers(0, 1 << 64, 7, dtype=np.uint64),
        block_size=3,
        max_blocks=num_blocks,
        num_blocks_max=num_blocks,
    )


def test_what_no_row_may_see_changes_nothing() -> None:
    batch = case(7, 3, 4, 2)
    arguments = arguments_of(batch)
    expected = launch(attention, **arguments)
    seen = np.zeros(len(arguments["kv"]), dtype=bool)
    for row in range(batch.num_real):
        position = np.arange(batch.num_computed[row] + batch.num_scheduled[row])
        blocks = batch.block_table[row * batch.max_blocks + position // 4]
        seen[blocks * 4 + position % 4] = True
    arguments["kv"] = np.where(seen, arguments["kv"], np.uint64(POISON))
    arguments["num_blocks_max"] = batch.max_blocks
    found = launch(attention, **arguments)
    assert not seen.all()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_a_position_that_no_block_covers_sees_the_blocks_of_its_row_and_the_first_of_the_pool() -> None:
    batch = case(3, 1, 4, 0)
    arguments = {**arguments_of(batch), "num_blocks_max": 2}
    arguments["positions"] = np.full(batch.num_tokens, 11)
    arguments["block_table"][:: batch.max_blocks] = PAD_BLOCK
    found = launch(attention, **arguments)["output"]
    for token, row in enumerate(batch.token_row):
        blocks = batch.block_table[row * batch.max_blocks :][:2].clip(0)
        words = [int(word) for block in blocks for word in arguments["kv"][block * 4 : block * 4 + 4]]
        assert found[token] == sum(word * (2 * (11 - j) + 1) for j, word in enumerate(words)) & model.MASK
