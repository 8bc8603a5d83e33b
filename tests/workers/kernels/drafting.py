"""What the tests of all drafters share: arguments of their chains, and what a chain must leave alone."""

from typing import Any

import numpy as np

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    MAX_MODEL_LEN,
    VOCAB_SIZE,
    Array,
    Batch,
    int_poison,
    word_poison,
)
from tests.workers.kernels.test_draft import Kept, token_index
from workers.kernels.sentinels import NO_DRAFT
from workers.record import model


def seen_from(position: int, cached: list[int]) -> int:
    """Return what attention at a position sees of words at positions from 0 on."""
    return sum(word * (2 * (position - at) + 1) for at, word in enumerate(cached)) & model.MASK


def next_tokens_of(batch: Batch) -> Array:
    """Return a valid token for each real row, poison for padding."""
    tokens = int_poison(batch.num_rows)
    tokens[: len(batch.rows)] = batch.rng.integers(0, VOCAB_SIZE, len(batch.rows))
    return tokens


def cache_of(batch: Batch, kept: Kept, bound: int = 1 << 64) -> Array:
    """Return a cache with words at the kept positions of each row, and poison elsewhere."""
    cache = word_poison(batch.num_slots)
    for row, last in zip(batch.rows, kept.last, strict=True):
        for position in range(row.computed + last + 1):
            cache[row.cache_slot(position)] = batch.rng.integers(0, bound, dtype=np.uint64)
    return cache


def cached_words(cache: Array, batch: Batch, kept: Kept, index: int) -> list[int]:
    row = batch.rows[index]
    return [int(cache[row.cache_slot(at)]) for at in range(row.computed + kept.last[index] + 1)]


def script_of(batch: Batch, bound: int) -> Array:
    script = batch.rng.integers(0, bound, batch.num_state_slots * MAX_MODEL_LEN)
    script[-MAX_MODEL_LEN:] = 1 << 40
    return script


def line_of(script: Array, slot: int, position: int) -> int:
    return int(script[slot * MAX_MODEL_LEN + min(position, MAX_MODEL_LEN - 1)])


def proposing(batch: Batch, kept: Kept, script_bound: int) -> dict[str, Any]:
    """Return the arguments that all chains have in common, in their order."""
    return {
        "next_tokens": next_tokens_of(batch),
        "positions": batch.positions,
        "token_index": token_index(batch, kept),
        "num_scheduled": batch.num_scheduled,
        "valid": batch.field(list(kept.valid)),
        "state_slot": batch.state_slot,
        "block_table": batch.block_table,
        "script": script_of(batch, script_bound),
        "drafter_kv": cache_of(batch, kept),
        "raw": word_poison(batch.num_rows * batch.k),
        "draft_tokens": int_poison(batch.num_rows * batch.k),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_blocks_max": batch.num_blocks_max,
        "max_model_len": MAX_MODEL_LEN,
        "num_speculative_tokens": batch.k,
    }


def assert_proposed(found: Any, index: int, batch: Batch, kept: Kept, expected: list[int]) -> None:
    """Check the drafts of a row: NO_DRAFT behind what is proposed, and everywhere without a valid token."""
    tokens = found["draft_tokens"].reshape(batch.num_rows, batch.k)[index].tolist()
    expected = expected if kept.valid[index] else []
    assert tokens == expected + [NO_DRAFT] * (batch.k - len(expected))


def assert_scratch(found: Array, before: Array, batch: Batch, kept: Kept, count: int) -> None:
    """Check that nothing was written but `count` positions behind each row's last kept token."""
    scratch = set()
    for row, last in zip(batch.rows, kept.last, strict=True):
        first = row.computed + last + 1
        stop = min(first + count, MAX_MODEL_LEN, len(row.blocks) * BLOCK_SIZE)
        scratch |= {row.cache_slot(position) for position in range(first, stop)}
    others = [slot for slot in range(batch.num_slots) if slot not in scratch]
    assert found[others].tolist() == before[others].tolist()
