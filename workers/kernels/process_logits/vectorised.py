"""Change logits by what the request of each row asks for: masks, bad words, penalties."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import arange
from workers.kernels.process_logits.arguments import (
    BAD_WORD_LENGTH,
    BAD_WORDS,
    BITS,
    PENALTY_SHIFT,
    Line,
    ProcessLogits,
    WriteHistory,
    line_of,
)
from workers.kernels.sentinels import UNKNOWN_TOKEN


def write_history(a: WriteHistory) -> None:
    """Write the tokens that `rows` verify, the last one sampled and its drafts, at their positions of the history."""
    history = a.lines.reshape(-1, a.line_length)[:, line_of(a.vocab_size).tokens :]
    for row in a.rows:
        width = 1 + a.num_drafts[row]
        skipped = a.num_scheduled[row] - width
        base, first = a.num_computed[row] + skipped, a.query_start[row] + skipped
        history[a.state_slot[row], base : base + width] = a.input_ids[first : first + width]


def process_logits(a: ProcessLogits) -> None:
    """Penalise and mask the logits of `rows`, in place: column j by the history up to draft j - 1, included."""
    at = line_of(a.vocab_size)
    scores = a.logits.reshape(-1, 1 + a.num_speculative_tokens, a.vocab_size)
    table = a.lines.reshape(-1, a.line_length)
    for row in a.rows:
        line = table[a.state_slot[row]]
        base = a.num_computed[row] + a.num_scheduled[row] - 1 - a.num_drafts[row]
        for column in range(1 + a.num_drafts[row]):
            history = line[at.tokens : at.tokens + base + column + 1]
            penalise(scores[row, column], line, history, at)
            mask(scores[row, column], line, history, at)


def penalise(scores: NDArray[Any], line: NDArray[Any], history: NDArray[Any], at: Line) -> None:
    """Apply the penalties of a line to logits [V]; a token that is not known counts for nothing.

    The sum of a token's additive penalties and the division by a power of two are exact in float32; what is left is
    one rounded subtraction, the same on every device.
    """
    presence, frequency, repetition = (int(line[place]) for place in (at.presence, at.frequency, at.repetition))
    if not (presence or frequency or repetition):
        return
    known = history != UNKNOWN_TOKEN
    if repetition:
        (seen,) = np.bincount(history[known], minlength=len(scores)).nonzero()
        scores[seen] = np.ldexp(scores[seen], np.where(np.signbit(scores[seen]), repetition, -repetition))
    output = history[line[at.num_prompt] :]
    counts = np.bincount(output[output != UNKNOWN_TOKEN], minlength=len(scores))
    scores -= ((frequency * counts + presence * (counts > 0)) << PENALTY_SHIFT).astype(np.float32)


def mask(scores: NDArray[Any], line: NDArray[Any], history: NDArray[Any], at: Line) -> None:
    """Set the logits [V] of tokens that a line forbids after a history to -inf."""
    scores[~bits_of(line[at.allowed : at.stop], len(scores))] = -np.inf
    if len(history) < line[at.min_length]:
        scores[bits_of(line[at.stop : at.bad_words], len(scores))] = -np.inf
    fields = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
    # Right-aligned: where the last token is not known there is no word.
    for padded in fields[fields[:, -1] != UNKNOWN_TOKEN]:
        word = padded[padded != UNKNOWN_TOKEN]
        prefix = len(word) - 1
        if prefix <= len(history) and (word[:prefix] == history[len(history) - prefix :]).all():
            scores[word[prefix]] = -np.inf


def bits_of(words: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return the first bits of a mask, one a token."""
    bits = (words[:, None] >> arange(BITS)) & 1
    return bits.ravel()[:count].astype(np.bool_)
