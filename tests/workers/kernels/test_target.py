"""The ops of the target model: keys and values, attention, logits."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.batches import (
    BLOCK_SIZE,
    MAX_BLOCKS,
    VOCAB_SIZE,
    Array,
    Batch,
    assert_pad_never_indexes,
    batches,
    call,
    each_shape,
    integers,
    word_poison,
    words,
)
from workers.kernels.attention.vectorised import attention
from workers.kernels.compute_logits.vectorised import compute_logits
from workers.kernels.kv_write.vectorised import kv_write
from workers.kernels.sentinels import PAD_ROW, POISON
from workers.record import model


@each_shape
@pytest.mark.parametrize("layer", [0, 1, 7])
def test_every_token_with_a_slot_stores_its_word_there_and_nothing_else_changes(
    num_rows: int, k: int, uniform: bool, padded: bool, layer: int
) -> None:
    for batch in batches(num_rows, k, uniform, padded, 2):
        ids = batch.token_ids()
        arguments: dict[str, Any] = {
            "input_ids": ids,
            "positions": batch.positions,
            "slots": batch.slots,
            "hidden": word_poison(batch.num_tokens),
            "kv": words(batch.rng, batch.num_slots),
            "layer": layer,
        }
        found = call(kv_write, **arguments)
        hidden, kv = [model.embed(token) for token in ids.tolist()], arguments["kv"].tolist()
        for row, offset, token in batch.tokens():
            position = batch.rows[row].computed + offset
            kv[batch.rows[row].cache_slot(position)] = model.kv_word(hidden[token], position, layer)
        assert found["hidden"].tolist() == hidden
        assert found["kv"].tolist() == kv
        if padded:
            assert_pad_never_indexes(kv_write, arguments, "kv")


def cache_of(batch: Batch) -> Array:
    """Return a cache in which every position up to the end of this step has a word, and the rest is poison."""
    kv = word_poison(batch.num_slots)
    for row in batch.rows:
        for position in range(row.computed + row.n):
            kv[row.cache_slot(position)] = words(batch.rng, 1)[0]
    return kv


def attended(batch: Batch, kv: Array) -> list[int]:
    """Return for each token the sum over j <= position of kv[j] * (2 (position - j) + 1); 0 for padding."""
    output = [0] * batch.num_tokens
    for index, offset, token in batch.tokens():
        row = batch.rows[index]
        position = row.computed + offset
        total = sum(int(kv[row.cache_slot(j)]) * (2 * (position - j) + 1) for j in range(position + 1))
        output[token] = total & model.MASK
    return output


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
def test_a_token_attends_to_its_own_sequence_up_to_itself_with_odd_weights(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        kv = cache_of(batch)
        expected = attended(batch, kv)
        for num_blocks_max in {batch.num_blocks_max, MAX_BLOCKS}:
            arguments = attention_arguments(batch, kv, num_blocks_max)
            found = call(attention, **arguments)
            assert found["output"].tolist() == expected
            for token, hidden in enumerate(arguments["hidden"].tolist()):
                is_real = arguments["token_row"][token] != PAD_ROW
                wanted = model.after_attention(hidden, expected[token]) if is_real else hidden
                assert found["hidden"][token] == wanted
            assert_pad_never_indexes(attention, arguments, "kv")


@each_shape
def test_attention_is_the_models_attention_of_two_running_sums(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded, 2):
        kv = cache_of(batch)
        output = call(attention, **attention_arguments(batch, kv, batch.num_blocks_max))["output"]
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            position = row.computed + offset
            seen = [int(kv[row.cache_slot(j)]) for j in range(position + 1)]
            sum_kv, sum_kv_position = sum(seen), sum(word * j for j, word in enumerate(seen))
            assert output[token] == model.attention(sum_kv, sum_kv_position, position)


def test_every_word_a_token_attends_to_changes_its_output_and_no_other_does() -> None:
    (batch,) = batches(3, 3, False, True, 1)
    kv = cache_of(batch)
    arguments = attention_arguments(batch, kv, batch.num_blocks_max)
    before = call(attention, **arguments)["output"]
    for slot in range(batch.num_slots):
        changed = kv.copy()
        changed[slot] ^= np.uint64(1)
        differs = before != call(attention, **{**arguments, "kv": changed})["output"]
        for index, offset, token in batch.tokens():
            row = batch.rows[index]
            attends = slot in [row.cache_slot(j) for j in range(row.computed + offset + 1)]
            assert bool(differs[token]) == attends


@each_shape
def test_the_logits_of_a_row_are_those_of_its_last_tokens_and_repeat_behind_its_drafts(
    num_rows: int, k: int, uniform: bool, padded: bool
) -> None:
    for batch in batches(num_rows, k, uniform, padded):
        hidden = batch.token_words()
        arguments = {
            "hidden": hidden,
            "query_start": batch.query_start,
            "num_scheduled": batch.num_scheduled,
            "num_drafts": batch.num_drafts,
            "logits": np.full(batch.num_rows * (1 + k) * VOCAB_SIZE, np.nan, dtype=np.float32),
            "num_speculative_tokens": k,
            "vocab_size": VOCAB_SIZE,
        }
        found = call(compute_logits, **arguments)["logits"].reshape(batch.num_rows, 1 + k, VOCAB_SIZE)
        for index, row in enumerate(batch.rows):
            for column in range(1 + k):
                word = int(hidden[batch.starts[index] + row.first + min(column, row.d)])
                assert found[index, column].tolist() == [model.logit(word, token) for token in range(VOCAB_SIZE)]


def test_a_logit_is_an_integer_that_float32_holds_exactly() -> None:
    largest = (1 << 24) - 1
    assert int(np.float32(largest)) == largest
    assert max(model.logit(word, token) for word in (0, POISON, model.MASK) for token in range(500)) <= largest


def test_logits_of_a_padding_row_behind_the_last_token_are_no_fault() -> None:
    found = call(
        compute_logits,
        hidden=words(np.random.default_rng(0), 1),
        query_start=integers([0, 1]),
        num_scheduled=integers([1, 0]),
        num_drafts=integers([0, 0]),
        logits=np.full(2 * 2, np.nan, dtype=np.float32),
        num_speculative_tokens=0,
        vocab_size=2,
    )
    assert not np.isnan(found["logits"]).any()
