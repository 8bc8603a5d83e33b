"""Paged causal attention with odd integer weights."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


@arguments
class Attention(Arguments):
    """Set output[i] = sum over j <= position of kv[j] * (2 (position - j) + 1), and advance the hidden words by it.

    `num_blocks_max` bounds the blocks of any row. Padding tokens have output 0 and keep their hidden word.
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
