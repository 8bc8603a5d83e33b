"""Attention that sums a prefix which all rows share once, then the rest of each row."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


@arguments
class CascadeAttention(Arguments):
    """Do what `attention` does, for rows whose first `num_common_blocks` blocks are those of row 0.

    Every token of the batch must lie behind the common blocks: it attends to all of them, without a mask. Sums are
    exact, so what is added in which order does not matter.
    Source: cascade inference (FlashInfer, Ye et al. 2024) for the shape: a shared part, and a part a row.
    """

    kv: Annotated[Memory, In("uint64", "num_blocks * block_size")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    token_row: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    hidden: Annotated[Memory, InOut("uint64", "T")]
    output: Annotated[Memory, Out("uint64", "T", of=("attended",))]
    block_size: int
    max_blocks: int
    num_blocks_max: int
    num_common_blocks: int
