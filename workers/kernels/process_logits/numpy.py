"""Apply each request's sampling parameters to its logits: masks, bad words, penalties."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.process_logits.definition import BAD_WORD_LENGTH, PENALTY_SHIFT, LineLayout, ProcessLogits, line_of
from workers.kernels.sentinels import UNKNOWN_TOKEN


def process_logits(a: ProcessLogits) -> None:
    at = line_of(a.vocab_size)
    scores = a.logits.reshape(-1, 1 + a.num_speculative_tokens, a.vocab_size)
    table = a.lines.reshape(-1, a.line_length)
    for row in a.rows.tolist():
        line, num_drafts = table[a.state_slot[row]], int(a.num_drafts[row])
        known = int(a.num_computed[row] + a.num_scheduled[row]) - num_drafts
        rules = rules_of(line, at, a.vocab_size)
        history = line[at.tokens : at.tokens + known + num_drafts].tolist()
        for column in range(1 + num_drafts):
            before = history[: known + column]
            penalise(scores[row, column], rules, before)
            mask(scores[row, column], rules, before)


class LineRules(NamedTuple):
    """Penalties, forbidden tokens, stop tokens and bad words of a request."""

    num_prompt: int
    min_length: int
    presence: int
    frequency: int
    repetition: int
    banned: NDArray[np.intp]
    stop: NDArray[Any]
    bad_words: list[list[int]]


def rules_of(line: NDArray[Any], at: LineLayout, vocab_size: int) -> LineRules:
    """Parse a request's line of the device parameter table."""
    numbers = line[: at.tokens].tolist()
    # Fields are right-aligned: a field without a last token holds no bad word.
    words = [
        [token for token in numbers[first : first + BAD_WORD_LENGTH] if token != UNKNOWN_TOKEN]
        for first in range(at.bad_words, at.tokens, BAD_WORD_LENGTH)
        if numbers[first + BAD_WORD_LENGTH - 1] != UNKNOWN_TOKEN
    ]
    (banned,) = np.logical_not(bits_of(line[at.allowed : at.stop], vocab_size)).nonzero()
    num_prompt, min_length, presence, frequency, repetition = numbers[: at.allowed]
    stop = line[at.stop : at.bad_words]
    return LineRules(num_prompt, min_length, presence, frequency, repetition, banned=banned, stop=stop, bad_words=words)


def penalise(scores: NDArray[Any], rules: LineRules, history: list[int]) -> None:
    """Apply penalties to logits [V]; unknown tokens are ignored.

    The sum of a token's additive penalties and the division by a power of two are exact in float32; what remains is one
    rounded subtraction, the same on every device.
    """
    presence, frequency, repetition = rules.presence, rules.frequency, rules.repetition
    if repetition:
        seen = np.array([token for token in set(history) if token != UNKNOWN_TOKEN], dtype=np.int64)
        found = scores[seen]
        scores[seen] = found * np.where(np.signbit(found), np.float32(2.0**repetition), np.float32(2.0**-repetition))
    if presence or frequency:
        counts = Counter(history[rules.num_prompt :])
        counts.pop(UNKNOWN_TOKEN, None)
        steps = [(frequency * count + presence) << PENALTY_SHIFT for count in counts.values()]
        scores[np.array([*counts], dtype=np.int64)] -= np.array(steps, dtype=np.float32)


def mask(scores: NDArray[Any], rules: LineRules, history: list[int]) -> None:
    """Set the logits [V] of tokens that are forbidden after a history to -inf."""
    if len(rules.banned):
        scores[rules.banned] = -np.inf
    if len(history) < rules.min_length:
        scores[bits_of(rules.stop, len(scores))] = -np.inf
    for word in rules.bad_words:
        prefix = len(word) - 1
        if prefix <= len(history) and word[:prefix] == history[len(history) - prefix :]:
            scores[word[prefix]] = -np.inf


def bits_of(words: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Return the first `count` bits of a bitmask, one per token."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), count=count, bitorder="little")
    return bits.view(np.bool_)
