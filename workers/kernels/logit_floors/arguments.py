"""Find the lowest logit that top-k and top-p keep, line by line."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

# A longer line is read in blocks, one program each.
SHORT_LINE = 8192
BLOCK_SIZE = 4096
# Limit on the logits of a line that are set aside.
CANDIDATES_MAX = 8192
# Numbers that are kept of a block, and of a line.
NUMBERS_PER_BLOCK = 3
NUMBERS_PER_LINE = 1


def workspace_length_of(vocab_size: int) -> int:
    """Return the length of a line's workspace: some numbers a block, and room for the logits that may be the floor."""
    if vocab_size <= SHORT_LINE:
        return NUMBERS_PER_LINE
    return NUMBERS_PER_LINE + NUMBERS_PER_BLOCK * -(-vocab_size // BLOCK_SIZE) + CANDIDATES_MAX


@arguments
class LogitFloors(Arguments):
    """Set floors to the lowest logit of each line that stays.

    The top_k largest logits stay (0: all), and of those the smallest set of largest with at least top_p of their
    probability (1: all). Logits equal to one that stays do too. Rows of temperature 0, columns past the drafts, and
    lines with NaN or inf, or of nothing but -inf, have the floor -inf. A floor that is zero is the positive one.
    What is left in the workspace means nothing.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    temperature: Annotated[Memory, In("float32", "B")]
    top_k: Annotated[Memory, In("int64", "B")]
    top_p: Annotated[Memory, In("float32", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    floors: Annotated[Memory, Out("float32", "B * (1 + K)")]
    workspace: Annotated[Memory, Out("float32", "B * (1 + K) * workspace_length", of=("floors_workspace",))]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int
