"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them."""

import numpy as np

from workers.kernels.probabilities import NEVER, Floats, Integers, lines_of, scale_of, weight
from workers.kernels.signature import In, Out


def sampler_stats(
    logits: In,
    draft_logits: In,
    draft_slots: In,
    floors: In,
    temperature: In,
    num_drafts: In,
    point_mass: In,
    block_max: Out,
    block_sum: Out,
    block_best: Out,
    tile_sum: Out,
    num_speculative_tokens: int,
    vocab_size: int,
    logits_stride: int,
    draft_stride: int,
    block_size: int,
    tile_size: int,
) -> None:
    """Find the maximum of each block of the vocabulary, and add up its weights relative to that maximum.

    Shapes: logits [B * (1 + K) * logits_stride] and draft_logits [slots * K * draft_stride] float32, each line with V
    logits in front; draft_logits is empty where every row has point_mass, else those of a row's drafts are in its slot;
    draft_slots [B], negative where a row has none; floors [B * (1 + K)] float32, logits below are as if -inf;
    temperature [B] float32; num_drafts, point_mass [B].
    block_max, block_sum [B * (1 + 2 K) * blocks] float32: the lines of logits, then those of draft_logits.
    block_best [B * (1 + K) * blocks]: the lowest index of the maximum, rows of temperature 0 only.
    tile_sum [B * (1 + K) * blocks * tiles] float32: the sums of the tiles of a block.
    Rows of temperature 0 have no sums. Columns past the drafts, and the draft logits of rows of temperature 0 and of
    rows whose drafts have all the probability of their draft distribution (point_mass), are not read; nothing is
    written for them. A block with NaN or inf has the maximum NaN.
    """
    num_rows, k = len(num_drafts), num_speculative_tokens
    random, scale = temperature > 0, scale_of(temperature)
    num_blocks, column = -(-vocab_size // block_size), np.arange(1 + k)
    tiles = (num_blocks, block_size // tile_size, tile_size)
    split = num_rows * (1 + k) * num_blocks

    row, at = np.nonzero(column <= num_drafts[:, None])
    lines, places = lines_of(logits, 1 + k, logits_stride, vocab_size)[row, at], row * (1 + k) + at
    maximum, sums, best = _reduce(lines, floors[places], scale[row], tiles)
    block_max[:split].reshape(-1, num_blocks)[places] = maximum
    is_random = random[row]
    block_sum[:split].reshape(-1, num_blocks)[places[is_random]] = sums[is_random].sum(axis=2)
    tile_sum.reshape(-1, *tiles[:2])[places[is_random]] = sums[is_random]
    block_best.reshape(-1, num_blocks)[places[~is_random]] = best[~is_random]

    has_logits = random & (point_mass == 0) & (draft_slots >= 0)
    row, at = np.nonzero((column[:k] < num_drafts[:, None]) & has_logits[:, None])
    if len(row):
        lines, places = lines_of(draft_logits, k, draft_stride, vocab_size)[draft_slots[row], at], row * k + at
        maximum, sums, _ = _reduce(lines, np.full(len(row), NEVER), scale[row], tiles)
        block_max[split:].reshape(-1, num_blocks)[places] = maximum
        block_sum[split:].reshape(-1, num_blocks)[places] = sums.sum(axis=2)


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
    best = blocks.reshape(num_lines, tiles[0], -1).argmax(axis=2) + np.arange(tiles[0]) * tiles[1] * tiles[2]
    return np.where(undefined, np.float32(np.nan), maximum), sums, best
