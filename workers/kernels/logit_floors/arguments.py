"""Find the lowest logit that top-k and top-p keep, line by line."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class LogitFloors(Arguments):
    """Set floors to the lowest logit of each line that stays.

    The top_k largest logits stay (0: all), and of those the smallest set of largest with at least top_p of their
    probability (1: all). Logits equal to one that stays do too. Rows of temperature 0, columns past the drafts, and
    lines with NaN or inf, or of nothing but -inf, have the floor -inf.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    temperature: Annotated[Memory, In("float32", "B")]
    top_k: Annotated[Memory, In("int64", "B")]
    top_p: Annotated[Memory, In("float32", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    floors: Annotated[Memory, Out("float32", "B * (1 + K)")]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int
