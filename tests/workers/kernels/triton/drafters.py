"""Arguments of drafters' ops, without loading Triton, for tests of definitions too."""

from typing import Any

import numpy as np

from tests.workers.kernels.calls import modes_of
from tests.workers.kernels.triton.cases import Case

WIDTH = 3
VOCAB_SIZE = 11


def last_kept(batch: Case) -> Any:
    """Return the index of a token of each row among those to verify; padding points at 0."""
    kept = batch.num_scheduled - 1 - batch.rng.integers(0, batch.num_drafts + 1)
    return np.where(batch.num_scheduled > 0, batch.query_start + kept, 0)


def arguments_of(op: Any, batch: Case, **more: Any) -> dict[str, Any]:
    """Return arguments of a drafter's op, by their names."""
    is_real = batch.num_scheduled > 0
    given: dict[str, Any] = {
        "hidden": batch.words(batch.num_tokens),
        "input_ids": batch.tokens(VOCAB_SIZE),
        "positions": batch.positions,
        "slots": batch.slots,
        "token_row": batch.token_row,
        "token_index": last_kept(batch),
        "next_tokens": np.where(is_real, batch.rng.integers(0, VOCAB_SIZE, batch.num_rows), 0),
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": batch.num_drafts,
        "valid": np.where(is_real, batch.rng.integers(0, 3, batch.num_rows), 0),
        "accepted": np.where(is_real, batch.rng.integers(0, 2 + batch.k, batch.num_rows), 0),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "script": batch.rng.integers(0, VOCAB_SIZE, batch.num_state_slots * batch.max_model_len),
        "carried": batch.words(batch.num_state_slots),
        "drafter_hidden": batch.words(batch.num_tokens),
        "drafter_attended": batch.words(batch.num_tokens),
        "drafter_states": batch.words(batch.num_state_slots * (2 + batch.k)),
        "drafter_conv": batch.words(batch.num_state_slots * (WIDTH + batch.k)),
        "drafter_kv": batch.words(batch.num_blocks * batch.block_size),
        "drafter_slots": batch.integers(batch.num_tokens),
        "raw": batch.words(batch.num_rows * batch.k),
        "own": batch.integers(batch.num_rows * batch.k),
        "draft_tokens": batch.integers(batch.num_rows * batch.k),
        "block_size": batch.block_size,
        "max_blocks": batch.max_blocks,
        "num_blocks_max": batch.num_blocks_max,
        "num_queries_max": int(batch.num_scheduled.max()),
        "max_model_len": batch.max_model_len,
        "num_speculative_tokens": batch.k,
        "num_proposed": batch.k,
        "vocab_size": VOCAB_SIZE,
        "vocab_block_min": 4096,
        "tile_size": 128,
        "conv_width": WIDTH,
        "drafter_max_len": batch.max_model_len // 2,
    }
    return {name: {**given, **more}[name] for name in modes_of(op)}
