"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them."""

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, Integers, below, integer, multiples
from workers.kernels.probabilities.vectorised import LEAST, NEVER, NONE, Flags, Floats, above, number, scale_of, weight
from workers.kernels.sampler_stats.arguments import SamplerStats

INFINITY = number(np.inf)


def sampler_stats(a: SamplerStats) -> None:
    """Find the maximum of each block of the vocabulary, and add up its weights relative to that maximum."""
    num_rows, k = len(a.num_drafts), a.num_speculative_tokens
    width, num_blocks, num_tiles = 1 + k, -(-a.vocab_size // a.block_size), a.block_size // a.tile_size
    is_random, scale, split = a.temperature > NONE, scale_of(a.temperature), num_rows * width * num_blocks

    (lines,) = below(1 + width)[1:, :width].take(a.num_drafts, axis=0).ravel().nonzero()
    rows = lines // integer(width)
    blocks = _blocks(a, a.logits, a.logits_stride, lines)
    maximum, undefined = _limited(blocks, a.floors.take(lines))
    a.block_max[:split].reshape(-1, num_blocks)[lines] = np.where(undefined, np.float32(np.nan), maximum)
    (drawn,) = is_random.take(rows).nonzero()
    if len(drawn):
        tiles = _tiles(a, blocks[drawn], maximum[drawn], scale.take(rows[drawn]))
        a.block_sum[:split].reshape(-1, num_blocks)[lines[drawn]] = np.add.reduce(tiles, axis=2)
        a.tile_sum.reshape(-1, num_blocks, num_tiles)[lines[drawn]] = tiles
    if len(drawn) < len(lines):
        (greedy,) = np.logical_not(is_random.take(rows)).nonzero()
        best = blocks[greedy].argmax(axis=2) + multiples(num_blocks, a.block_size)
        a.block_best.reshape(-1, num_blocks)[lines[greedy]] = best

    has_line = is_random & (a.point_mass == ZERO) & (a.draft_slots >= ZERO)
    rows, columns = (below(width).take(a.num_drafts, axis=0) & has_line[:, None]).nonzero()
    if len(rows):
        blocks = _blocks(a, a.draft_logits, a.draft_stride, a.draft_slots.take(rows) * integer(k) + columns)
        maximum, undefined = _limited(blocks, np.full(len(rows), NEVER))
        lines = rows * integer(k) + columns
        a.block_max[split:].reshape(-1, num_blocks)[lines] = np.where(undefined, np.float32(np.nan), maximum)
        tiles = _tiles(a, blocks, maximum, scale.take(rows))
        a.block_sum[split:].reshape(-1, num_blocks)[lines] = np.add.reduce(tiles, axis=2)


def _blocks(a: SamplerStats, logits: Floats, stride: int, lines: Integers) -> Floats:
    """Return lines of logits cut into blocks, [N, num_blocks, block_size], a copy; -inf behind the vocabulary."""
    blocks = np.full((len(lines), -(-a.vocab_size // a.block_size), a.block_size), NEVER)
    blocks.reshape(len(lines), -1)[:, : a.vocab_size] = logits.reshape(-1, stride).take(lines, axis=0)[
        :, : a.vocab_size
    ]
    return blocks


def _limited(blocks: Floats, floors: Floats) -> tuple[Floats, Flags]:
    """Take logits below the floors [N] out of blocks, and all of a block with NaN or inf; return maxima and what is."""
    maximum = np.maximum.reduce(blocks, axis=2)
    # Not where it is NaN either.
    undefined = ~(maximum < INFINITY)
    is_limited = np.count_nonzero(floors > NEVER)
    if is_limited:
        blocks[:] = above(blocks, floors[:, None, None])
    if is_limited or np.count_nonzero(undefined):
        blocks[undefined] = NEVER
        maximum = np.maximum.reduce(blocks, axis=2)
    return maximum, undefined


def _tiles(a: SamplerStats, blocks: Floats, maximum: Floats, scale: Floats) -> Floats:
    """Return the sums of the tiles of blocks, [N, num_blocks, num_tiles], relative to the maxima of the blocks."""
    weights = weight(blocks, np.maximum(maximum, LEAST)[:, :, None], scale[:, None, None])
    sums: Floats = np.add.reduce(weights.reshape(*maximum.shape, -1, a.tile_size), axis=3)
    return sums
