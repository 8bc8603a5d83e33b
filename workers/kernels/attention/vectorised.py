"""Paged causal attention with odd integer weights."""

from workers.kernels.arithmetic.vectorised import NOTHING, ZERO, cached_words, integer, mix
from workers.kernels.arithmetic.vectorised import attention as attended
from workers.kernels.attention.arguments import Attention


def attention(a: Attention) -> None:
    """Set output[i] = sum over j <= position of kv[j] * (2 (position - j) + 1), and advance the hidden words by it."""
    index = a.token_row * integer(a.num_blocks_max * a.block_size)
    index += a.positions
    attended(cached_words(a.kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max), index, a.output)
    (padding,) = (a.token_row < ZERO).nonzero()
    a.output[padding] = NOTHING
    hidden = mix(a.output + a.hidden)
    hidden[padding] = a.hidden[padding]
    a.hidden[:] = hidden
