"""Change logits by what the request of each row asks for: masks, bad words, penalties."""

from typing import Any, NamedTuple

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
        rules = rules_of(line, at, a.vocab_size)
        for column in range(1 + a.num_drafts[row]):
            history = line[at.tokens : at.tokens + base + column + 1]
            penalise(scores[row, column], rules, history)
            mask(scores[row, column], rules, history)


class Rules(NamedTuple):
    """What a line asks for, whatever the history is: tokens that are `banned`, the mask of stop tokens, bad words."""

    num_prompt: int
    min_length: int
    presence: int
    frequency: int
    repetition: int
    banned: NDArray[np.intp]
    stop: NDArray[Any]
    bad_words: list[NDArray[Any]]


def rules_of(line: NDArray[Any], at: Line, vocab_size: int) -> Rules:
    """Read a line up to its tokens."""
    fields = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
    # Right-aligned: where the last token is not known there is no word.
    words = [padded[padded != UNKNOWN_TOKEN] for padded in fields[fields[:, -1] != UNKNOWN_TOKEN]]
    (banned,) = np.logical_not(bits_of(line[at.allowed : at.stop], vocab_size)).nonzero()
    num_prompt, min_length, presence, frequency, repetition = line[: at.allowed].tolist()
    stop = line[at.stop : at.bad_words]
    return Rules(num_prompt, min_length, presence, frequency, repetition, banned, stop, words)


def penalise(scores: NDArray[Any], rules: Rules, history: NDArray[Any]) -> None:
    """Apply penalties to logits [V]; a token that is not known counts for nothing.

    The sum of a token's additive penalties and the division by a power of two are exact in float32; what is left is
    one rounded subtraction, the same on every device.
    """
    presence, frequency, repetition = rules.presence, rules.frequency, rules.repetition
    if repetition:
        (seen,) = np.bincount(history[history != UNKNOWN_TOKEN], minlength=len(scores)).nonzero()
        scores[seen] = np.ldexp(scores[seen], np.where(np.signbit(scores[seen]), repetition, -repetition))
    if presence or frequency:
        output = history[rules.num_prompt :]
        counts = np.bincount(output[output != UNKNOWN_TOKEN], minlength=len(scores))
        scores -= ((frequency * counts + presence * (counts > 0)) << PENALTY_SHIFT).astype(np.float32)


def mask(scores: NDArray[Any], rules: Rules, history: NDArray[Any]) -> None:
    """Set the logits [V] of tokens that are forbidden after a history to -inf."""
    if len(rules.banned):
        scores[rules.banned] = -np.inf
    if len(history) < rules.min_length:
        scores[bits_of(rules.stop, len(scores))] = -np.inf
    for word in rules.bad_words:
        prefix = len(word) - 1
        if prefix <= len(history) and (word[:prefix] == history[len(history) - prefix :]).all():
            scores[word[prefix]] = -np.inf


def bits_of(words: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return the first bits of a mask, one a token."""
    bits = (words[:, None] >> arange(BITS)) & 1
    return bits.ravel()[:count].astype(np.bool_)
