"""Attention that sums a prefix which all rows share once, then the rest of each row."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import WORDS, after_attention, attention_weight
from workers.kernels.sentinels import PAD_ROW


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


def cascade_attention(a: CascadeAttention) -> None:
    """Do what attention does, with the common blocks of row 0 as the first blocks of every row."""
    for token in range(len(a.hidden)):
        row = int(a.token_row[token])
        if row == PAD_ROW:
            a.output[token] = 0
            continue
        position = int(a.positions[token])
        total = 0
        for at in range(position + 1):
            column = at // a.block_size
            owner = 0 if column < a.num_common_blocks else row
            block = int(a.block_table[owner * a.max_blocks + column])
            assert block >= 0, f"position {at} of row {row} has no block"
            word = int(a.kv[block * a.block_size + at % a.block_size])
            total += word * attention_weight(position, at)
        a.output[token] = total % WORDS
        a.hidden[token] = after_attention(int(a.hidden[token]), total)
