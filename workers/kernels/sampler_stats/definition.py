"""Reduce logits to a maximum and sums per vocabulary block: the only pass over all logits."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from workers.kernels.argument import Memory, Out, arguments
from workers.kernels.probabilities.definition import NEVER, ZERO, num_blocks_of, ordered_sum, scale_of, weight
from workers.kernels.probabilities.shared_arguments import Distributions


@arguments
class SamplerStats(Distributions):
    """Compute each vocabulary block's maximum, and the sums of its tokens' weights.

    Rows of temperature 0 have no sums. Columns past the draft tokens are not read, nor are draft logits of rows with
    temperature 0 or point-mass draft tokens (`point_mass`); nothing is written for them. A block with NaN or inf has
    the maximum NaN.
    """

    block_max: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_best: Annotated[Memory, Out("int64", "B * (1 + K) * num_vocab_blocks")]
    tile_sum: Annotated[Memory, Out("float32", "B * (1 + K) * num_vocab_blocks * num_tiles")]
    tile_size: int


def sampler_stats(a: SamplerStats) -> None:
    """Compute each vocabulary block's maximum, and the sums of its tokens' weights."""
    k, num_blocks = a.num_speculative_tokens, num_blocks_of(a)
    for row in range(len(a.num_drafts)):
        is_random, scale = a.temperature[row] > 0, scale_of(a.temperature[row])
        for column in range(1 + a.num_drafts[row]):
            line = row * (1 + k) + column
            logits = a.logits[line * a.logits_stride :][: a.vocab_size]
            for block in range(num_blocks):
                place = line * num_blocks + block
                maximum, best, tiles = _reduce(a, logits, a.floors[line], scale, block)
                a.block_max[place] = maximum
                if is_random:
                    a.block_sum[place] = ordered_sum(tiles)
                    for tile, mass in enumerate(tiles):
                        a.tile_sum[place * len(tiles) + tile] = mass
                else:
                    a.block_best[place] = best
        slot = int(a.draft_slots[row])
        if is_random and a.point_mass[row] == 0 and slot >= 0:
            for column in range(a.num_drafts[row]):
                logits = a.draft_logits[(slot * k + column) * a.draft_stride :][: a.vocab_size]
                for block in range(num_blocks):
                    place = (len(a.num_drafts) * (1 + k) + row * k + column) * num_blocks + block
                    maximum, _, tiles = _reduce(a, logits, NEVER, scale, block)
                    a.block_max[place] = maximum
                    a.block_sum[place] = ordered_sum(tiles)


def _reduce(
    a: SamplerStats, logits: NDArray[np.float32], floor: np.float32, scale: np.float32, block: int
) -> tuple[np.float32, int, list[np.float32]]:
    """Return a block's maximum, the lowest token id that has it, and the sums of its tiles.

    A block with NaN or inf has the maximum NaN, sums of 0, and its first token.
    """
    first, num_tiles = block * a.block_size, a.block_size // a.tile_size
    stop = min(first + a.block_size, a.vocab_size)
    if not all(logits[token] < np.inf for token in range(first, stop)):
        return np.float32(np.nan), first, [ZERO] * num_tiles
    maximum, best = NEVER, first
    for token in range(first, stop):
        if logits[token] >= floor and logits[token] > maximum:
            maximum, best = logits[token], token
    tiles = []
    for tile in range(num_tiles):
        tokens = range(first + tile * a.tile_size, min(first + (tile + 1) * a.tile_size, stop))
        tiles.append(ordered_sum(weight(logits[token], floor, maximum, scale) for token in tokens))
    return maximum, best, tiles
