"""Paged causal attention over the KV cache, with odd integer weights."""

import numpy as np

from workers.kernels.arithmetic.numpy import NOTHING, ZERO, cached_entries, int64_scalar, mix
from workers.kernels.arithmetic.numpy import attention as attended
from workers.kernels.attention.definition import Attention
from workers.kernels.sentinels import PAD_ROW


def attention(a: Attention) -> None:
    index = a.token_row * int64_scalar(a.num_blocks_max * a.block_size)
    index += a.positions
    attended(cached_entries(a.kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max), index, a.output)
    if PAD_ROW not in a.token_row.tolist():
        mix(np.add(a.hidden, a.output, a.hidden))
        return
    (padding,) = (a.token_row < ZERO).nonzero()
    a.output[padding] = NOTHING
    hidden = a.hidden[padding]
    mix(np.add(a.hidden, a.output, a.hidden))
    a.hidden[padding] = hidden
