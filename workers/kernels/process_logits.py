"""Change logits by what the request of each row asks for: masks, bad words, penalties."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic import arange
from workers.kernels.signature import UNKNOWN_TOKEN, In, InOut

BITS = 32  # tokens a word of a mask
BAD_WORDS = 8
BAD_WORD_LENGTH = 8
PENALTY_SHIFT = 14  # a penalty of 1/64 in units of a logit: 2^20 of them are 1.0


class Line(NamedTuple):
    """Where a request's line has what: offsets into it. Masks have one bit a token, words of BITS bits.

    Bad words are right-aligned in BAD_WORDS fields of BAD_WORD_LENGTH tokens, padded with UNKNOWN_TOKEN;
    `tokens` has one place a position.
    """

    num_prompt: int
    min_length: int
    presence: int
    frequency: int
    repetition: int
    allowed: int
    stop: int
    bad_words: int
    tokens: int


def line_of(vocab_size: int) -> Line:
    """Return the layout of a line."""
    words = -(-vocab_size // BITS)
    bad_words = 5 + 2 * words
    return Line(0, 1, 2, 3, 4, 5, 5 + words, bad_words, bad_words + BAD_WORDS * BAD_WORD_LENGTH)


def write_history(
    rows: In,
    state_slot: In,
    num_computed: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    input_ids: In,
    lines: InOut,
    line_length: int,
    vocab_size: int,
) -> None:
    """Write the tokens that `rows` verify, the last one sampled and its drafts, at their positions of the history.

    Shapes: rows [any]; state_slot, num_computed, query_start, num_scheduled, num_drafts [num_rows]; input_ids
    [num_tokens]; lines [num_state_slots * line_length]. What lies before them was written by earlier steps or by the
    host. A rejected draft is overwritten when its position comes again.
    """
    history = lines.reshape(-1, line_length)[:, line_of(vocab_size).tokens :]
    for row in rows:
        width = 1 + num_drafts[row]
        skipped = num_scheduled[row] - width
        base, first = num_computed[row] + skipped, query_start[row] + skipped
        history[state_slot[row], base : base + width] = input_ids[first : first + width]


def process_logits(
    rows: In,
    state_slot: In,
    num_computed: In,
    num_scheduled: In,
    num_drafts: In,
    lines: In,
    logits: InOut,
    line_length: int,
    num_speculative_tokens: int,
    vocab_size: int,
) -> None:
    """Penalise and mask the logits of `rows`, in place: column j by the history up to draft j - 1, included.

    Shapes: rows [any]; state_slot, num_computed, num_scheduled, num_drafts [num_rows]; lines [num_state_slots *
    line_length]; logits [num_rows * (1 + K) * V] float32. Columns past d stay as they are.
    """
    at = line_of(vocab_size)
    scores = logits.reshape(-1, 1 + num_speculative_tokens, vocab_size)
    table = lines.reshape(-1, line_length)
    for row in rows:
        line = table[state_slot[row]]
        base = num_computed[row] + num_scheduled[row] - 1 - num_drafts[row]
        for column in range(1 + num_drafts[row]):
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
        scores[seen] = np.ldexp(scores[seen], np.where(scores[seen] > 0, -repetition, repetition))
    output = history[line[at.num_prompt] :]
    counts = np.bincount(output[output != UNKNOWN_TOKEN], minlength=len(scores))
    scores -= ((frequency * counts + presence * (counts > 0)) << PENALTY_SHIFT).astype(np.float32)


def mask(scores: NDArray[Any], line: NDArray[Any], history: NDArray[Any], at: Line) -> None:
    """Set the logits [V] of tokens that a line forbids after a history to -inf."""
    scores[~bits_of(line[at.allowed : at.stop], len(scores))] = -np.inf
    if len(history) < line[at.min_length]:
        scores[bits_of(line[at.stop : at.bad_words], len(scores))] = -np.inf
    for padded in line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH):
        word = padded[padded != UNKNOWN_TOKEN]
        prefix = len(word) - 1
        if 0 <= prefix <= len(history) and (word[:prefix] == history[len(history) - prefix :]).all():
            scores[word[prefix]] = -np.inf


def bits_of(words: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return the first bits of a mask, one a token."""
    bits = (words[:, None] >> arange(BITS)) & 1
    return bits.ravel()[:count].astype(np.bool_)


def spoil_logits(rows: In, logits: InOut, num_logits: int) -> None:
    """Set all logits of `rows`, `num_logits` each, to what is not a number."""
    logits.reshape(-1, num_logits)[rows] = np.nan
