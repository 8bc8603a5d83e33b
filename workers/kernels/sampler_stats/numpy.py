"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them.

Row by row: a step has few, and the lines of one lie in one piece.
"""

import numpy as np

from workers.kernels.arithmetic.numpy import multiples
from workers.kernels.probabilities.numpy import LEAST, LOG2E, NEVER, Floats, number, weight
from workers.kernels.sampler_stats.definition import SamplerStats

INFINITY, UNDEFINED = number(np.inf), number(np.nan)
NO_FLOOR = NEVER.reshape(1)
# So many numbers NumPy adds up side by side.
LANES = 8


def sampler_stats(a: SamplerStats) -> None:
    k, num_blocks = a.num_speculative_tokens, -(-a.vocab_size // a.block_size)
    num_tiles, split = a.block_size // a.tile_size, len(a.num_drafts) * (1 + k)
    point_mass, slots = a.point_mass.tolist(), a.draft_slots.tolist()
    for row, (num_drafts, temperature) in enumerate(zip(a.num_drafts.tolist(), a.temperature, strict=True)):
        first, last = row * (1 + k) * num_blocks, (row * (1 + k) + 1 + num_drafts) * num_blocks
        blocks = _blocks(a, a.logits, a.logits_stride, row * (1 + k), 1 + num_drafts)
        floors = a.floors[row * (1 + k) : row * (1 + k) + 1 + num_drafts]
        blocks, maximum, a.block_max[first:last] = _limited(blocks, floors)
        if not temperature > 0:
            best = blocks.argmax(axis=1).reshape(-1, num_blocks) + multiples(num_blocks, a.block_size)
            a.block_best[first:last] = best.ravel()
            continue
        scale = LOG2E / temperature
        tiles = _tiles(a, blocks, maximum, scale)
        a.tile_sum[first * num_tiles : last * num_tiles] = tiles
        a.block_sum[first:last] = _added(tiles, num_tiles)
        if num_drafts and point_mass[row] == 0 and slots[row] >= 0:
            first = (split + row * k) * num_blocks
            last = first + num_drafts * num_blocks
            blocks = _blocks(a, a.draft_logits, a.draft_stride, slots[row] * k, num_drafts)
            blocks, maximum, a.block_max[first:last] = _limited(blocks, NO_FLOOR)
            a.block_sum[first:last] = _added(_tiles(a, blocks, maximum, scale), num_tiles)


def _blocks(a: SamplerStats, logits: Floats, stride: int, first: int, count: int) -> Floats:
    """Return `count` lines of logits from the first on, cut into blocks, [N, block_size]; -inf behind the vocabulary.

    They may be the logits themselves. A block that is all there is ends where nothing but -inf follows.
    """
    lines = logits[first * stride : (first + count) * stride].reshape(count, stride)[:, : a.vocab_size]
    width = a.block_size
    if a.vocab_size <= a.tile_size == width:
        # In the sum of a tile, whole lanes without weight change nothing.
        width = min(-(-a.vocab_size // LANES) * LANES, width)
    length = -(-a.vocab_size // width) * width
    if length == a.vocab_size:
        return lines.reshape(-1, width)
    padded = np.empty((count, length), dtype=np.float32)
    padded.fill(NEVER)
    padded[:, : a.vocab_size] = lines
    return padded.reshape(-1, width)


def _limited(blocks: Floats, floors: Floats) -> tuple[Floats, Floats, Floats]:
    """Return blocks without logits below the floors of their lines, and without any where one is NaN or inf.

    And their maxima; and the same, but NaN for a block with NaN or inf.
    """
    maximum = np.maximum.reduce(blocks, axis=1)
    # Not where it is NaN either.
    defined = maximum < INFINITY
    if max(floors.tolist()) == -np.inf and all(defined.tolist()):
        return blocks, maximum, maximum
    stays = blocks >= floors.repeat(len(blocks) // len(floors))[:, None]
    stays &= defined[:, None]
    blocks = np.where(stays, blocks, NEVER)
    maximum = np.maximum.reduce(blocks, axis=1)
    return blocks, maximum, np.where(defined, maximum, UNDEFINED)


def _tiles(a: SamplerStats, blocks: Floats, maximum: Floats, scale: Floats) -> Floats:
    """Return the sums of the tiles of blocks, one after the other, relative to the maxima of the blocks."""
    weights = weight(blocks, np.maximum(maximum, LEAST)[:, None], scale)
    sums: Floats = np.add.reduce(weights.reshape(-1, min(a.tile_size, weights.shape[1])), axis=1)
    return sums


def _added(tiles: Floats, num_tiles: int) -> Floats:
    """Return the sums of blocks of tiles."""
    return tiles if num_tiles == 1 else np.add.reduce(tiles.reshape(-1, num_tiles), axis=1)
