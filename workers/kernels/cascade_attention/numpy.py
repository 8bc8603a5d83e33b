"""Cascade attention: sum the KV-cache blocks of a shared prefix only once."""

import numpy as np

from workers.kernels.arithmetic.numpy import (
    NOTHING,
    ONE,
    TWO,
    ZERO,
    arange,
    as_uint64,
    cached_entries,
    int64_scalar,
    mix,
)
from workers.kernels.cascade_attention.definition import CascadeAttention


def cascade_attention(a: CascadeAttention) -> None:
    start, end = a.num_common_blocks * a.block_size, a.num_blocks_max * a.block_size
    cached = cached_entries(a.kv, a.block_table, a.block_size, a.max_blocks, a.num_blocks_max)
    common, rest = cached[0, :start], cached[:, start:]
    index = np.maximum(a.token_row, ZERO) * int64_scalar(end - start)
    index += np.maximum(a.positions - int64_scalar(start), ZERO)
    position = as_uint64(arange(end))
    sums = np.add.accumulate(rest, axis=1).take(index)
    sums += np.add.reduce(common)
    sums_position = np.add.accumulate(rest * position[start:], axis=1).take(index)
    sums_position += np.add.reduce(common * position[:start])
    # The weight of position j at position i is 2 i + 1 - 2 j.
    sums *= as_uint64(a.positions) * TWO + ONE
    sums_position *= TWO
    np.subtract(sums, sums_position, out=a.output)
    (padding,) = (a.token_row < ZERO).nonzero()
    a.output[padding] = NOTHING
    hidden = mix(a.output + a.hidden)
    hidden[padding] = a.hidden[padding]
    a.hidden[:] = hidden
