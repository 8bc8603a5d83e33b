"""Apply each request's sampling parameters to its logits: masks, bad words, penalties."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.sentinels import UNKNOWN_TOKEN

BITS = 32  # tokens a word of a mask
BAD_WORDS = 8
BAD_WORD_LENGTH = 8
PENALTY_SHIFT = 14  # a penalty of 1/64 in units of a logit: 2^20 of them are 1.0


class LineLayout(NamedTuple):
    """Offsets of sampling parameters in a request's line of the device parameter table.

    Masks have one bit per token, in words of BITS.

    Bad words are right-aligned in BAD_WORDS fields of BAD_WORD_LENGTH tokens, padded with UNKNOWN_TOKEN; `tokens` has
    one entry per position.
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


def line_of(vocab_size: int) -> LineLayout:
    """Return the offsets of sampling parameters in a line, given the vocabulary size."""
    words = -(-vocab_size // BITS)
    bad_words = 5 + 2 * words
    return LineLayout(
        num_prompt=0,
        min_length=1,
        presence=2,
        frequency=3,
        repetition=4,
        allowed=5,
        stop=5 + words,
        bad_words=bad_words,
        tokens=bad_words + BAD_WORDS * BAD_WORD_LENGTH,
    )


@arguments
class WriteHistory(Arguments):
    """Append the tokens that a step verifies to the token histories of `rows`.

    These are the last sampled token and its draft tokens.

    Tokens before these were written by earlier steps or by the host. A rejected draft token is overwritten when a later
    token gets its position.
    """

    rows: Annotated[Memory, In("int64", "count", of=("processed_rows",))]
    state_slot: Annotated[Memory, In("int64", "B")]
    num_computed: Annotated[Memory, In("int64", "B")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    input_ids: Annotated[Memory, In("int64", "T")]
    lines: Annotated[Memory, InOut("int64", "num_state_slots * line_length")]
    line_length: int
    vocab_size: int


@arguments
class ProcessLogits(Arguments):
    """Apply penalties and masks to the logits of `rows`, in place.

    Column j uses the history up to draft token j - 1.

    Columns past d, the row's number of draft tokens, stay unchanged.
    """

    rows: Annotated[Memory, In("int64", "count", of=("processed_rows",))]
    state_slot: Annotated[Memory, In("int64", "B")]
    num_computed: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    lines: Annotated[Memory, In("int64", "num_state_slots * line_length")]
    logits: Annotated[Memory, InOut("float32", "B * (1 + K) * V")]
    line_length: int
    num_speculative_tokens: int
    vocab_size: int


def write_history(a: WriteHistory) -> None:
    """Write the verified tokens of `rows` at their positions in the token history."""
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
    """Apply penalties, then masks, to the logits of the verified columns of `rows`."""
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
    """Return a logit after repetition, presence and frequency penalties.

    The repetition penalty is a power of two.

    Repetition counts tokens of the whole history, presence and frequency those of the output.
    """
    if history.count(token) > 0:
        factor = np.float32(2.0 ** line[at.repetition])
        logit = logit / factor if logit > 0 else logit * factor
    count = history[line[at.num_prompt] :].count(token)
    penalty = line[at.frequency] * count
    if count > 0:
        penalty += line[at.presence]
    return logit - np.float32(penalty * 2**PENALTY_SHIFT)


def _is_masked(token: int, line: Sequence[int], history: Sequence[int], at: LineLayout) -> bool:
    """Return whether masks or bad words forbid a token after the request's history."""
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
    """Return whether a bitmask contains a token."""
    return (words[token // BITS] >> (token % BITS)) & 1 == 1


def _ends_with(history: Sequence[int], prefix: Sequence[int]) -> bool:
    """Return whether a history ends with the tokens of `prefix`."""
    return len(prefix) <= len(history) and history[len(history) - len(prefix) :] == prefix
