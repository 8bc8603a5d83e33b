"""Attention whose common prefix is read through the block table of row 0, one cached word at a time."""

from workers.kernels.arithmetic.definition import WORDS, after_attention, attention_weight
from workers.kernels.cascade_attention.arguments import CascadeAttention
from workers.kernels.sentinels import PAD_ROW


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
