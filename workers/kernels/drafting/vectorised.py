"""Shared NumPy code of drafters: sums over a drafter's cache, and where a chain may write in it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import ZERO, Words, first_of, integer, multiples, ones_and_positions
from workers.kernels.sentinels import NO_DRAFT


def cached_sums(cache: Any, table: Any, last: Any, block_size: int, num_blocks_max: int) -> tuple[Words, Words]:
    """Return for each row the sum of its cached words at positions <= last, and of those times their position.

    Shapes: cache [num_blocks * block_size] uint64; table [num_rows, max_blocks]; last and both sums [num_rows].
    """
    length = num_blocks_max * block_size
    # Clipped: a row may own fewer blocks.
    seen = cache.reshape(-1, block_size).take(table[:, :num_blocks_max], axis=0, mode="clip").reshape(-1, length)
    seen *= first_of(length)[np.minimum(last + integer(1), integer(length))]
    sums, sums_position = seen.dot(ones_and_positions(length)).T
    return sums, sums_position


def write_scratch(
    cache: Any, stored: Words, block_table: Any, position: Any, num_real: Any, block_size: int, length: int
) -> None:
    """Write words [num_rows, count] at positions of the same shape, where real rows own the block.

    Shapes: cache as above, block_table [num_rows * max_blocks]. Positions from `length` on have no place, nor has
    padding, whose rows come last. What is written lies behind the last kept token: nobody relies on it.
    """
    num_rows, count = stored.shape
    max_blocks = len(block_table) // num_rows
    at, size = position[:num_real].ravel(), integer(block_size)
    block = at // size
    row = multiples(num_real, max_blocks).repeat(count)
    row += np.minimum(block, integer(max_blocks - 1))
    owned = block_table.take(row)
    inside = at < integer(length)
    inside &= owned >= ZERO
    owned -= block
    owned *= size
    owned += at
    cache[owned[inside]] = stored[:num_real].ravel()[inside]


def scripted(script: Any, state_slot: Any, position: Any, max_model_len: int) -> NDArray[np.int64]:
    """Return what the script of each row's slot says at positions [num_rows, count]; past its end, its last word."""
    at = np.minimum(position, integer(max_model_len - 1))
    at += (state_slot * integer(max_model_len)).repeat(position.shape[1]).reshape(position.shape)
    # Clipped: padding has no slot.
    found: NDArray[np.int64] = script.take(at, mode="clip")
    return found


def propose(draft_tokens: Any, proposed: Any, valid: Any) -> None:
    """Write proposed [num_rows, count] into draft_tokens [num_rows, K]; NO_DRAFT behind, and without a valid token."""
    count = proposed.shape[1]
    draft_tokens.fill(NO_DRAFT)
    np.copyto(draft_tokens[:, :count], proposed, where=(valid > ZERO).repeat(count).reshape(proposed.shape))
