"""Reduce logits to a maximum and sums per vocabulary block: the only pass over all logits.

Row by row: a step has few rows, and the logits of a row are contiguous.
"""

import numpy as np

from workers.kernels.arithmetic.numpy import multiples
from workers.kernels.probabilities.numpy import LEAST, LOG2E, NEVER, Floats, number, weight
from workers.kernels.sampler_stats.definition import SamplerStats

INFINITY, UNDEFINED = number(np.inf), number(np.nan)
NO_FLOOR = NEVER.reshape(1)
# NumPy adds this many numbers in parallel.
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
    """Return `count` rows of logits from row `first` on, divided into blocks: [N, block_size].

    -inf past the vocabulary.

    The result may be a view of the logits. A single block may be shortened where only -inf would follow.
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
    """Return blocks with logits below the floor set to -inf, and blocks with NaN or inf too.

    Also return their maxima, and the maxima with NaN for blocks with NaN or inf.
    """
    maximum = np.maximum.reduce(blocks, axis=1)
    # False for NaN too.
    defined = maximum < INFINITY
    if max(floors.tolist()) == -np.inf and all(defined.tolist()):
        return blocks, maximum, maximum
    stays = blocks >= floors.repeat(len(blocks) // len(floors))[:, None]
    stays &= defined[:, None]
    blocks = np.where(stays, blocks, NEVER)
    maximum = np.maximum.reduce(blocks, axis=1)
    return blocks, maximum, np.where(defined, maximum, UNDEFINED)


def _tiles(a: SamplerStats, blocks: Floats, maximum: Floats, scale: Floats) -> Floats:
    """Return the sums of all tiles of blocks, relative to the blocks' maxima."""
    weights = weight(blocks, np.maximum(maximum, LEAST)[:, None], scale)
    sums: Floats = np.add.reduce(weights.reshape(-1, min(a.tile_size, weights.shape[1])), axis=1)
    return sums


def _added(tiles: Floats, num_tiles: int) -> Floats:
    """Return each block's sum over its tiles."""
    return tiles if num_tiles == 1 else np.add.reduce(tiles.reshape(-1, num_tiles), axis=1)
