"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them."""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange
from workers.kernels.probabilities.vectorised import NEVER, Floats, Integers, lines_of, scale_of, weight
from workers.kernels.sampler_stats.arguments import SamplerStats


def sampler_stats(a: SamplerStats) -> None:
    """Find the maximum of each block of the vocabulary, and add up its weights relative to that maximum."""
    num_rows, k = len(a.num_drafts), a.num_speculative_tokens
    random, scale = a.temperature > 0, scale_of(a.temperature)
    num_blocks, column = -(-a.vocab_size // a.block_size), arange(1 + k)
    tiles = (num_blocks, a.block_size // a.tile_size, a.tile_size)
    split = num_rows * (1 + k) * num_blocks

    row, at = np.nonzero(column <= a.num_drafts[:, None])
    lines, places = lines_of(a.logits, 1 + k, a.logits_stride, a.vocab_size)[row, at], row * (1 + k) + at
    maximum, sums, best = _reduce(lines, a.floors[places], scale[row], tiles)
    a.block_max[:split].reshape(-1, num_blocks)[places] = maximum
    is_random = random[row]
    a.block_sum[:split].reshape(-1, num_blocks)[places[is_random]] = sums[is_random].sum(axis=2)
    a.tile_sum.reshape(-1, *tiles[:2])[places[is_random]] = sums[is_random]
    a.block_best.reshape(-1, num_blocks)[places[~is_random]] = best[~is_random]

    has_logits = random & (a.point_mass == 0) & (a.draft_slots >= 0)
    row, at = np.nonzero((column[:k] < a.num_drafts[:, None]) & has_logits[:, None])
    if len(row):
        lines, places = lines_of(a.draft_logits, k, a.draft_stride, a.vocab_size)[a.draft_slots[row], at], row * k + at
        maximum, sums, _ = _reduce(lines, np.full(len(row), NEVER), scale[row], tiles)
        a.block_max[split:].reshape(-1, num_blocks)[places] = maximum
        a.block_sum[split:].reshape(-1, num_blocks)[places] = sums.sum(axis=2)


def _reduce(
    lines: Floats, floors: Floats, scale: Floats, tiles: tuple[int, int, int]
) -> tuple[Floats, Floats, Integers]:
    """Return of lines [N, V] the maxima of blocks, the sums of tiles, and the indices of the maxima."""
    num_lines, vocab_size = lines.shape
    padded = np.full((num_lines, tiles[0] * tiles[1] * tiles[2]), NEVER)
    padded[:, :vocab_size] = lines
    blocks = padded.reshape(num_lines, *tiles)
    undefined = (np.isnan(blocks) | (blocks == np.inf)).any(axis=(2, 3))
    blocks = np.where((blocks >= floors[:, None, None, None]) & ~undefined[:, :, None, None], blocks, NEVER)
    maximum = blocks.max(axis=(2, 3))
    finite = np.where(maximum == NEVER, np.float32(0), maximum)
    sums = weight(blocks, NEVER, finite[:, :, None, None], scale[:, None, None, None]).sum(axis=3)
    best = blocks.reshape(num_lines, tiles[0], -1).argmax(axis=2) + arange(tiles[0]) * tiles[1] * tiles[2]
    return np.where(undefined, np.float32(np.nan), maximum), sums, best
