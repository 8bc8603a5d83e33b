"""The Triton kernels that change logits write what their definitions do."""

from typing import Any

import numpy as np
import pytest

from tests.workers.kernels.triton.cases import Array, Case, case
from tests.workers.kernels.triton.launches import assert_equal
from workers.kernels.process_logits import vectorised as definition
from workers.kernels.process_logits.arguments import BAD_WORD_LENGTH, BAD_WORDS, line_of
from workers.kernels.process_logits.triton import process_logits, write_history
from workers.kernels.sentinels import UNKNOWN_TOKEN
from workers.kernels.spoil_logits.triton import spoil_logits
from workers.kernels.spoil_logits.vectorised import spoil_logits as defined_spoil_logits

SHAPES = [(1, 0, 2), (7, 1, 33), (33, 3, 7), (33, 5, 129), (7, 3, 300)]


def lines_of(batch: Case, vocab_size: int) -> Array:
    """Return a line of random parameters and tokens a state slot; few token ids, so that they repeat."""
    rng, at = batch.rng, line_of(vocab_size)
    lines = rng.integers(UNKNOWN_TOKEN, min(vocab_size, 3), (batch.num_state_slots, at.tokens + batch.max_model_len))
    for line in lines:
        line[at.num_prompt], line[at.min_length] = rng.integers(0, batch.max_model_len, 2)
        line[at.presence], line[at.frequency] = rng.integers(-128, 129, 2) * rng.integers(0, 2, 2)
        line[at.repetition] = rng.integers(-6, 7)
        line[at.allowed : at.bad_words] = rng.integers(0, 1 << 32, at.bad_words - at.allowed)
        words = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
        lengths = rng.permutation(1 + BAD_WORD_LENGTH)[:BAD_WORDS]
        words[:] = rng.integers(0, min(vocab_size, 2), words.shape)
        words[np.arange(BAD_WORD_LENGTH) < BAD_WORD_LENGTH - lengths[:, None]] = UNKNOWN_TOKEN
    return lines


def chosen(batch: Case) -> Array:
    """Return some of the real rows, in any order."""
    return batch.rng.permutation(batch.num_real)[: -(-batch.num_real * 3 // 4)]


@pytest.mark.parametrize(("num_rows", "k", "vocab_size"), SHAPES)
def test_the_logits_of_the_verified_columns_of_some_rows_are_penalised_and_masked_and_no_others(
    num_rows: int, k: int, vocab_size: int
) -> None:
    for seed in range(2):
        batch = case(num_rows, k, 4, 2, seed)
        lines = lines_of(batch, vocab_size)
        logits = batch.rng.integers(-(1 << 24), 1 << 24, batch.num_rows * (1 + k) * vocab_size).astype(np.float32)
        logits[batch.rng.random(len(logits)) < 0.05] = -np.inf
        logits[batch.rng.random(len(logits)) < 0.05] = np.nan
        assert_equal(
            process_logits,
            definition.process_logits,
            rows=chosen(batch),
            state_slot=batch.state_slot,
            num_computed=batch.num_computed,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            lines=lines.ravel(),
            logits=logits,
            line_length=lines.shape[1],
            num_speculative_tokens=k,
            vocab_size=vocab_size,
        )


@pytest.mark.parametrize("length", [0, 1, 3, 7])
def test_a_bad_word_is_completed_by_the_end_of_the_history_alone(length: int) -> None:
    at = line_of(5)
    line = np.full(at.tokens + 12, 4)
    line[at.num_prompt : at.allowed], line[at.allowed], line[at.stop] = 0, 0b11111, 0
    words = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
    words[:] = UNKNOWN_TOKEN
    for token, prefix in enumerate(([], [4], [4, 4, 4], [4] * 7)):
        words[token, BAD_WORD_LENGTH - 1 - len(prefix) :] = [*prefix, token]
    # Lies where a history too short would be read before its beginning.
    words[-1] = 4
    found = assert_equal(
        process_logits,
        definition.process_logits,
        rows=np.array([0]),
        state_slot=np.array([0]),
        num_computed=np.array([length - 1]),
        num_scheduled=np.array([1]),
        num_drafts=np.array([0]),
        lines=line,
        logits=np.ones(5, dtype=np.float32),
        line_length=len(line),
        num_speculative_tokens=0,
        vocab_size=5,
    )
    assert np.isinf(found["logits"]).tolist() == [True, length >= 1, length >= 3, length >= 7, length >= 7]


@pytest.mark.parametrize(("num_rows", "k", "vocab_size"), SHAPES)
def test_the_verified_tokens_of_some_rows_are_written_at_their_positions_and_nothing_else(
    num_rows: int, k: int, vocab_size: int
) -> None:
    batch = case(num_rows, k)
    assert_equal(write_history, definition.write_history, **history_arguments(batch, batch.num_drafts, vocab_size))


def test_a_run_longer_than_a_block_of_tokens_is_written_to_its_end() -> None:
    batch = case(7, 0, 1)
    run = np.maximum(batch.num_scheduled - 1, 0)
    run[batch.num_real - 1] += 20
    arguments = history_arguments(batch, run, 7)
    arguments["num_scheduled"] = run + 1
    arguments["num_computed"] = np.zeros(batch.num_rows, dtype=np.int64)
    arguments["query_start"] = np.cumsum(run + 1) - run - 1
    arguments["input_ids"] = batch.rng.integers(0, 7, int((run + 1).sum()))
    assert_equal(write_history, definition.write_history, **arguments)


def history_arguments(batch: Case, num_drafts: Array, vocab_size: int) -> dict[str, Any]:
    lines = lines_of(batch, vocab_size)
    return {
        "rows": np.arange(batch.num_real) if batch.k == 0 else chosen(batch),
        "state_slot": batch.state_slot,
        "num_computed": batch.num_computed,
        "query_start": batch.query_start,
        "num_scheduled": batch.num_scheduled,
        "num_drafts": num_drafts,
        "input_ids": batch.tokens(vocab_size),
        "lines": lines.ravel(),
        "line_length": lines.shape[1],
        "vocab_size": vocab_size,
    }


@pytest.mark.parametrize("num_logits", [2, 33, 1500])
def test_spoiled_rows_are_no_numbers_and_the_others_stay(num_logits: int) -> None:
    assert_equal(
        spoil_logits,
        defined_spoil_logits,
        rows=np.array([4, 0, 2]),
        logits=np.arange(7 * num_logits, dtype=np.float32),
        num_logits=num_logits,
    )
