"""Apply the sampling parameters of each row's request to its logits: masks, bad words, penalties."""

from typing import Annotated, NamedTuple

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments

BITS = 32  # tokens a word of a mask
BAD_WORDS = 8
BAD_WORD_LENGTH = 8
PENALTY_SHIFT = 14  # a penalty of 1/64 in units of a logit: 2^20 of them are 1.0


class LineLayout(NamedTuple):
    """Layout of a request's line: offsets into it. Masks have one bit a token, words of BITS bits.

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


def line_of(vocab_size: int) -> LineLayout:
    """Return the layout of a line."""
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
    """Write the tokens that `rows` verify, the last one sampled and its drafts, at their positions of the history.

    What lies before them was written by earlier steps or by the host. A rejected draft is overwritten when its
    position comes again.
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
    """Penalise and mask the logits of `rows`, in place: column j by the history up to draft j - 1, included.

    Columns past d stay as they are.
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
