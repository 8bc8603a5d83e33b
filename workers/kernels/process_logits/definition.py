"""Logits changed by the sampling parameters of requests, one row, one column and one token at a time."""

from collections.abc import Sequence

import numpy as np

from workers.kernels.process_logits.arguments import (
    BAD_WORD_LENGTH,
    BAD_WORDS,
    BITS,
    PENALTY_SHIFT,
    LineLayout,
    ProcessLogits,
    WriteHistory,
    line_of,
)
from workers.kernels.sentinels import UNKNOWN_TOKEN


def write_history(a: WriteHistory) -> None:
    """Write the token that each of `rows` verifies first, and its drafts, at their positions of its history."""
    tokens = line_of(a.vocab_size).tokens
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        line = int(a.state_slot[row]) * a.line_length
        num_drafts = int(a.num_drafts[row])
        skipped = int(a.num_scheduled[row]) - 1 - num_drafts
        for offset in range(skipped, skipped + 1 + num_drafts):
            position = int(a.num_computed[row]) + offset
            a.lines[line + tokens + position] = a.input_ids[int(a.query_start[row]) + offset]


def process_logits(a: ProcessLogits) -> None:
    """Penalise, then mask every logit of the verified columns of `rows`, by the history before that column."""
    at, width = line_of(a.vocab_size), 1 + a.num_speculative_tokens
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        first = int(a.state_slot[row]) * a.line_length
        line = [int(value) for value in a.lines[first : first + a.line_length]]
        num_drafts = int(a.num_drafts[row])
        verified_first = int(a.num_computed[row]) + int(a.num_scheduled[row]) - 1 - num_drafts
        for column in range(1 + num_drafts):
            history = line[at.tokens : at.tokens + verified_first + 1 + column]
            for token in range(a.vocab_size):
                place = (row * width + column) * a.vocab_size + token
                if _is_masked(token, line, history, at):
                    a.logits[place] = -np.inf
                else:
                    a.logits[place] = _penalised(a.logits[place], token, line, history, at)


def _penalised(
    logit: np.float32, token: int, line: Sequence[int], history: Sequence[int], at: LineLayout
) -> np.float32:
    """Return a logit after penalties: a power of two for what the history has, then steps for what the output has."""
    if history.count(token) > 0:
        factor = np.float32(2.0 ** line[at.repetition])
        logit = logit / factor if logit > 0 else logit * factor
    count = history[line[at.num_prompt] :].count(token)
    penalty = line[at.frequency] * count
    if count > 0:
        penalty += line[at.presence]
    return logit - np.float32(penalty * 2**PENALTY_SHIFT)


def _is_masked(token: int, line: Sequence[int], history: Sequence[int], at: LineLayout) -> bool:
    """Tell whether a line forbids a token after a history."""
    if not _has_bit(line[at.allowed : at.stop], token):
        return True
    if len(history) < line[at.min_length] and _has_bit(line[at.stop : at.bad_words], token):
        return True
    for index in range(BAD_WORDS):
        first = at.bad_words + index * BAD_WORD_LENGTH
        word = [each for each in line[first : first + BAD_WORD_LENGTH] if each != UNKNOWN_TOKEN]
        if word and word[-1] == token and _ends_with(history, word[:-1]):
            return True
    return False


def _has_bit(words: Sequence[int], token: int) -> bool:
    """Tell whether a mask has a token."""
    return (words[token // BITS] >> (token % BITS)) & 1 == 1


def _ends_with(history: Sequence[int], prefix: Sequence[int]) -> bool:
    """Tell whether a history ends with some tokens."""
    return len(prefix) <= len(history) and history[len(history) - len(prefix) :] == prefix
