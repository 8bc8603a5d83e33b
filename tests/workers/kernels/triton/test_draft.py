"""Attention of the EAGLE-like Triton chain at positions without a block."""

from typing import Any

import numpy as np

from tests.workers.kernels.triton.cases import Case, case
from tests.workers.kernels.triton.drafters import VOCAB_SIZE, last_kept
from tests.workers.kernels.triton.launches import launch
from workers.kernels.eagle.triton import draft_chain
from workers.kernels.sentinels import NO_DRAFT, PAD_BLOCK, PAD_SLOT
from workers.record import model


def chain_arguments(batch: Case, num_proposed: int) -> dict[str, Any]:
    return {
        "drafter_hidden": batch.words(batch.num_tokens),
        "positions": batch.positions,
        "token_index": last_kept(batch),
        "num_scheduled": batch.num_scheduled,
        "valid": np.where(batch.num_scheduled > 0, batch.rng.integers(0, 3, batch.num_rows), 0),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "draft_slots": np.full(batch.num_rows * batch.k, PAD_SLOT),
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


def test_attention_past_the_blocks_reads_own_blocks_and_block_zero() -> None:
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
