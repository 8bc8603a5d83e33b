"""The Triton kernels of the drafter write what their definitions do."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.drafters import SHAPES, VOCAB_SIZE, last_kept
from tests.workers.kernels.triton.launches import assert_equal, launch
from workers.kernels.eagle import vectorised as definition
from workers.kernels.eagle.triton import draft_chain, draft_first_pass
from workers.kernels.sentinels import NO_DRAFT, PAD_BLOCK
from workers.record import model


@pytest.mark.parametrize(("num_rows", "k", "block_size", "padding"), SHAPES)
def test_the_first_pass_feeds_every_token_with_the_one_that_follows_it(
    num_rows: int, k: int, block_size: int, padding: int
) -> None:
    for seed in range(2):
        batch = case(num_rows, k, block_size, padding, seed)
        assert_equal(
            draft_first_pass,
            definition.draft_first_pass,
            hidden=batch.words(batch.num_tokens),
            input_ids=batch.tokens(VOCAB_SIZE),
            positions=batch.positions,
            slots=batch.slots,
            token_index=last_kept(batch),
            next_tokens=batch.rng.integers(0, VOCAB_SIZE, batch.num_rows),
            num_scheduled=batch.num_scheduled,
            drafter_hidden=batch.words(batch.num_tokens),
            drafter_kv=batch.words(batch.num_blocks * block_size),
        )


def chain_arguments(batch: Case, num_proposed: int) -> dict[str, Any]:
    return {
        "drafter_hidden": batch.words(batch.num_tokens),
        "positions": batch.positions,
        "token_index": last_kept(batch),
        "num_scheduled": batch.num_scheduled,
        "valid": np.where(batch.num_scheduled > 0, batch.rng.integers(0, 3, batch.num_rows), 0),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "script": batch.rng.integers(NO_DRAFT, VOCAB_SIZE, batch.num_state_slots * batch.max_model_len),
        "drafter_kv": batch.words(batch.num_blocks * batch.block_size),
        "raw": batch.words(batch.num_rows * batch.k),
        "draft_tokens": batch.integers(batch.num_rows * batch.k),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_blocks_max": batch.num_blocks_max,
        "max_model_len": batch.max_model_len,
        "num_speculative_tokens": batch.k,
        "num_proposed": num_proposed,
    }


@pytest.mark.parametrize(("num_rows", "k", "block_size", "padding"), SHAPES)
def test_the_chain_proposes_the_script_and_computes_a_word_from_its_own_cache(
    num_rows: int, k: int, block_size: int, padding: int
) -> None:
    for num_proposed in sorted({0, 1, k - 1, k}):
        batch = case(num_rows, k, block_size, padding, num_proposed)
        assert_equal(draft_chain, definition.draft_chain, **chain_arguments(batch, num_proposed))


def test_the_chain_stores_nothing_past_the_model_or_past_the_blocks_of_a_row() -> None:
    batch = case(7, 5, 4, 2)
    arguments = chain_arguments(batch, 5)
    own = -(-(batch.num_computed + batch.num_scheduled) // 4)[::2]
    batch.block_table.reshape(-1, batch.max_blocks)[::2][np.arange(batch.max_blocks) >= own[:, None]] = PAD_BLOCK
    found = launch(draft_chain, **arguments)["drafter_kv"]
    may_change = np.zeros(len(found), dtype=bool)
    last = batch.positions[arguments["token_index"]]
    for row in range(batch.num_real):
        for position in range(last[row] + 1, min(last[row] + 5, batch.max_model_len)):
            if (block := batch.block_table[row * batch.max_blocks + position // 4]) >= 0:
                may_change[block * 4 + position % 4] = True
    np.testing.assert_array_equal(found != arguments["drafter_kv"], may_change)


def test_a_position_that_no_block_covers_sees_the_blocks_of_its_row_and_the_first_of_the_pool() -> None:
    batch = case(3, 1, 4, 0)
    arguments = {**chain_arguments(batch, 1), "num_blocks_max": 2}
    arguments["positions"] = np.full(batch.num_tokens, 11)
    arguments["block_table"][:: batch.max_blocks] = PAD_BLOCK
    found = launch(draft_chain, **arguments)["raw"]
    for row in range(3):
        blocks = batch.block_table[row * batch.max_blocks :][:2].clip(0)
        words = [int(word) for block in blocks for word in arguments["drafter_kv"][block * 4 : block * 4 + 4]]
        attended = sum(word * (2 * (11 - j) + 1) for j, word in enumerate(words))
        assert found[row] == model.mix(
            (attended + int(arguments["drafter_hidden"][arguments["token_index"][row]])) & model.MASK
        )
