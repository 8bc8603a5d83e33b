"""The Triton attention kernel depends on visible words only, and reads no missing block."""

from typing import Any

import numpy as np

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.launches import launch
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


def test_attention_ignores_words_outside_the_rows() -> None:
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


def test_attention_past_the_blocks_reads_own_blocks_and_block_zero() -> None:
    batch = case(3, 1, 4, 0)
    arguments = {**arguments_of(batch), "num_blocks_max": 2}
    arguments["positions"] = np.full(batch.num_tokens, 11)
    arguments["block_table"][:: batch.max_blocks] = PAD_BLOCK
    found = launch(attention, **arguments)["output"]
    assert len(found) == len(batch.token_row) > 0
    for token, row in enumerate(batch.token_row):
        blocks = batch.block_table[row * batch.max_blocks :][:2].clip(0)
        words = [int(word) for block in blocks for word in arguments["kv"][block * 4 : block * 4 + 4]]
        assert found[token] == sum(word * (2 * (11 - j) + 1) for j, word in enumerate(words)) & model.MASK
