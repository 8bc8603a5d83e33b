"""The ops of the target model: keys and values, attention, logits."""

from typing import Any

import numpy as np

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    Array,
    Batch,
    batches,
    call,
    each_shape,
    word_poison,
    words,
)
from workers.kernels.attention.numpy import attention
from workers.kernels.sentinels import POISON
from workers.record import model


def cache_of(batch: Batch) -> Array:
    """Return a KV cache with a word for every position before the end of this step, else poison."""
    kv = word_poison(batch.num_slots)
    for row in batch.rows:
        for position in range(row.computed + row.n):
            kv[row.cache_slot(position)] = words(batch.rng, 1)[0]
    return kv


def attention_arguments(batch: Batch, kv: Array, num_blocks_max: int) -> dict[str, Any]:
    return {
        "kv": kv,
        "block_table": batch.block_table,
        "token_row": batch.token_row,
        "positions": batch.positions,
        "hidden": batch.token_words(),
        "output": word_poison(batch.num_tokens),
        "block_size": BLOCK_SIZE,
        "max_blocks": MAX_BLOCKS,
        "num_blocks_max": num_blocks_max,
    }


@each_shape
def test_triton_attention_equals_model_attention(num_rows: int, k: int, uniform: bool, padded: bool) -> None:
    drawn = list(batches(num_rows, k, uniform, padded, 2))
    assert drawn
    for batch in drawn:
        kv = cache_of(batch)
        output = call(attention, **attention_arguments(batch, kv, batch.num_blocks_max))["output"]
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            position = row.computed + offset
            seen = [int(kv[row.cache_slot(j)]) for j in range(position + 1)]
            sum_kv, sum_kv_position = sum(seen), sum(word * j for j, word in enumerate(seen))
            assert output[token] == model.attention(sum_kv, sum_kv_position, position)


def test_attention_output_depends_on_attended_words_only() -> None:
    (batch,) = batches(3, 3, False, True, 1)
    kv = cache_of(batch)
    arguments = attention_arguments(batch, kv, batch.num_blocks_max)
    before = call(attention, **arguments)["output"]
    assert batch.num_slots
    for slot in range(batch.num_slots):
        changed = kv.copy()
        changed[slot] ^= np.uint64(1)
        differs = before != call(attention, **{**arguments, "kv": changed})["output"]
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            attends = slot in [row.cache_slot(j) for j in range(row.computed + offset + 1)]
            assert bool(differs[token]) == attends


def test_logit_is_exact_in_float32() -> None:
    largest = (1 << 24) - 1
    assert int(np.float32(largest)) == largest
    assert max(model.logit(word, token) for word in (0, POISON, model.MASK) for token in range(500)) <= largest
