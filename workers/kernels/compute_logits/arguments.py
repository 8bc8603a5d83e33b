"""Compute the logits of the positions that are to be sampled."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class ComputeLogits(Arguments):
    """Write the logits of the last 1 + d tokens of each row.

    Columns past d repeat column d.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    logits: Annotated[Memory, Out("float32", "B * (1 + K) * V")]
    num_speculative_tokens: int
    vocab_size: int
