"""Paged causal attention over the KV cache, with odd integer weights."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import WORDS, after_attention, attention_weight
from workers.kernels.sentinels import PAD_ROW


@arguments
class Attention(Arguments):
    """Set each token's output to the sum over j <= position of kv[j] * (2 (position - j) + 1).

    Update the hidden states with it.

    `num_blocks_max` is the largest number of blocks of any row. Padding tokens get output 0 and keep their hidden
    state.
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


def attention(a: Attention) -> None:
    """Compute attention of each token to the KV entries of its row, up to its own position.

    Update its hidden state.
    """
    attend(a, 0)


def attend(a: Attention, num_common_blocks: int) -> None:
    """Compute `attention`, taking the first `num_common_blocks` blocks of all rows from row 0."""
    for token in range(len(a.hidden)):
        row = int(a.token_row[token])
        if row == PAD_ROW:
            a.output[token] = 0
            continue
        position = int(a.positions[token])
        total = 0
        for at in range(position + 1):
            column = at // a.block_size
            owner = 0 if column < num_common_blocks else row
            block = int(a.block_table[owner * a.max_blocks + column])
            assert block >= 0, f"position {at} of row {row} has no block"
            word = int(a.kv[block * a.block_size + at % a.block_size])
            total += word * attention_weight(position, at)
        a.output[token] = total % WORDS
        a.hidden[token] = after_attention(int(a.hidden[token]), total)
