"""Cases of processed logits: every penalty, mask and length of a bad word; NaN and infinity."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Array, Batch, Row, batch, batches
from workers.kernels.process_logits.definition import (
    BAD_WORD_LENGTH,
    BAD_WORDS,
    BITS,
    ProcessLogits,
    WriteHistory,
    line_of,
)
from workers.kernels.sentinels import UNKNOWN_TOKEN


def lines_of(batch: Batch) -> Array:
    """Return a parameter-table line for each state slot, with few token ids, which repeat."""
    rng, at = batch.rng, line_of(batch.vocab_size)
    ids = min(batch.vocab_size, 5)
    length = int((batch.num_computed + batch.num_scheduled).max()) + batch.k
    lines = rng.integers(UNKNOWN_TOKEN, ids, (batch.num_state_slots, at.tokens + length))
    for index, line in enumerate(lines):
        line[at.num_prompt], line[at.min_length] = rng.integers(0, length, 2)
        line[at.presence], line[at.frequency] = rng.integers(-128, 129, 2) * [index % 3 != 1, index % 3 > 0]
        line[at.repetition] = rng.integers(-6, 7) * (index % 4 > 0)
        line[at.allowed : at.stop] = np.bitwise_or.reduce(rng.integers(0, 1 << BITS, (3, at.stop - at.allowed)))
        line[at.stop : at.bad_words] = rng.integers(0, 1 << BITS, at.bad_words - at.stop)
        words = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
        lengths = rng.permutation(1 + BAD_WORD_LENGTH)[:BAD_WORDS]
        words[:] = rng.integers(0, ids, words.shape)
        words[np.arange(BAD_WORD_LENGTH) < BAD_WORD_LENGTH - lengths[:, None]] = UNKNOWN_TOKEN
    return lines


def bad_words(length: int) -> ProcessLogits:
    """Return a history of `length` times token 4, and bad words that its end completes or not."""
    at = line_of(5)
    line = np.full(at.tokens + 12, 4)
    line[at.num_prompt : at.allowed], line[at.allowed], line[at.stop] = 0, 0b11111, 0
    words = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
    words[:] = UNKNOWN_TOKEN
    for token, prefix in enumerate(([], [4], [4, 4, 4], [4] * 7)):
        words[token, BAD_WORD_LENGTH - 1 - len(prefix) :] = [*prefix, token]
    # Stored where too short a history would be read before its beginning.
    words[-1] = 4
    return ProcessLogits(
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


def cases() -> Iterator[ProcessLogits | WriteHistory]:
    """Yield arguments of the op for every batch, long drafts, and bad words of every length."""
    run = batch([Row(18, 17, 3), Row(20, 17, 0)], k=17, block_size=3, vocab_size=33, seed=7)
    for each in (*batches(), run):
        lines, rows = lines_of(each), each.some_rows()
        yield WriteHistory(
            rows=rows,
            state_slot=each.state_slot,
            num_computed=each.num_computed,
            query_start=each.query_start,
            num_scheduled=each.num_scheduled,
            num_drafts=each.num_drafts,
            input_ids=each.ids(),
            lines=lines.ravel(),
            line_length=lines.shape[1],
            vocab_size=each.vocab_size,
        )
        num_logits = each.num_rows * (1 + each.k) * each.vocab_size
        logits = each.rng.integers(-(1 << 20), 1 << 24, num_logits).astype(np.float32)
        for value in (-np.inf, np.nan, 0.0, 1.0, -0.5):
            logits[each.rng.random(num_logits) < 0.05] = value
        yield ProcessLogits(
            rows=rows,
            state_slot=each.state_slot,
            num_computed=each.num_computed,
            num_scheduled=each.num_scheduled,
            num_drafts=each.num_drafts,
            lines=lines.ravel(),
            logits=logits,
            line_length=lines.shape[1],
            num_speculative_tokens=each.k,
            vocab_size=each.vocab_size,
        )
    for length in (0, 1, 3, 7):
        yield bad_words(length)
