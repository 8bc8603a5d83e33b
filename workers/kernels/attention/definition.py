"""Paged causal attention with odd integer weights, one token and one cached word at a time."""

from workers.kernels.arithmetic.definition import WORDS, after_attention, attention_weight
from workers.kernels.attention.arguments import Attention
from workers.kernels.sentinels import PAD_ROW


def attention(a: Attention) -> None:
    """Let each token see its row's words up to its own position, and advance its hidden word by their sum."""
    for token in range(len(a.hidden)):
        row = int(a.token_row[token])
        if row == PAD_ROW:
            a.output[token] = 0
            continue
        position = int(a.positions[token])
        total = 0
        for at in range(position + 1):
            block = int(a.block_table[row * a.max_blocks + at // a.block_size])
            assert block >= 0, f"position {at} of row {row} has no block"
            word = int(a.kv[block * a.block_size + at % a.block_size])
            total += word * attention_weight(position, at)
        a.output[token] = total % WORDS
        a.hidden[token] = after_attention(int(a.hidden[token]), total)
