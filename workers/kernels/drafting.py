"""What the NumPy definitions of draft ops share: sums over a drafter's cache, and where a chain may write in it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic import Words, arange, column, integer, word, words
from workers.kernels.signature import NO_DRAFT


def cached_sums(cache: Any, table: Any, last: Any, block_size: int, num_blocks_max: int) -> tuple[Words, Words]:
    """Return for each row the sum of its cached words at positions <= last, and of those times their position.

    Shapes: cache [num_blocks * block_size] uint64; table [num_rows, max_blocks]; last and both sums [num_rows].
    """
    length = num_blocks_max * block_size
    seen = cache.reshape(-1, block_size)[np.maximum(table[:, :num_blocks_max], integer(0))].reshape(len(table), length)
    np.copyto(seen, word(0), where=arange(length) > last[:, None])
    sums = np.add.reduce(seen, axis=1)
    seen *= words(arange(length))
    return sums, np.add.reduce(seen, axis=1)


def write_scratch(
    cache: Any, stored: Words, table: Any, position: Any, real: Any, block_size: int, length: int
) -> None:
    """Write words [num_rows, count] at positions of the same shape, where rows are real and own the block.

    Positions from `length` on have no place. What is written lies behind the last kept token: nobody relies on it.
    """
    size = integer(block_size)
    block = table[column(len(table)), np.minimum(position // size, integer(table.shape[1] - 1))]
    inside = (position < integer(length)) & (block >= integer(0)) & real[:, None]
    cache[(block * size + position % size)[inside]] = stored[inside]


def scripted(script: Any, state_slot: Any, position: Any, max_model_len: int) -> NDArray[np.int64]:
    """Return what the script of each row's slot says at positions [num_rows, count]; past its end, its last word."""
    slot = np.maximum(state_slot, integer(0))[:, None]
    at = np.minimum(position, integer(max_model_len - 1))
    found: NDArray[np.int64] = script.reshape(-1, max_model_len)[slot, at]
    return found


def propose(draft_tokens: Any, proposed: Any, valid: Any) -> None:
    """Write proposed [num_rows, count] into draft_tokens [num_rows, K]; NO_DRAFT behind, and without a valid token."""
    count = proposed.shape[1]
    draft_tokens[:, :count] = proposed
    draft_tokens[:, count:] = NO_DRAFT
    draft_tokens[valid <= integer(0)] = NO_DRAFT
