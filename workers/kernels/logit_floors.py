"""Find the lowest logit that top-k and top-p keep, line by line."""

import numpy as np

from workers.kernels.probabilities import NEVER, lines_of, scale_of, weight
from workers.kernels.signature import In, Out


def logit_floors(
    logits: In,
    temperature: In,
    top_k: In,
    top_p: In,
    num_drafts: In,
    floors: Out,
    num_speculative_tokens: int,
    vocab_size: int,
    logits_stride: int,
) -> None:
    """Set floors to the lowest logit of each line that stays.

    Shapes: logits [B * (1 + K) * logits_stride] float32; temperature, top_p [B] float32; top_k, num_drafts [B];
    floors [B * (1 + K)] float32. The top_k largest logits stay (0: all), and of those the smallest set of largest
    with at least top_p of their probability (1: all). Logits equal to one that stays do too. Rows of temperature 0,
    columns past the drafts, and lines with NaN or inf, or of nothing but -inf, have the floor -inf.
    """
    width = 1 + num_speculative_tokens
    lines, scale = lines_of(logits, width, logits_stride, vocab_size), scale_of(temperature)
    floors[:] = NEVER
    for row in np.flatnonzero((temperature > 0) & ((top_k > 0) | (top_p < 1))):
        for column in range(1 + int(num_drafts[row])):
            line = lines[row, column]
            maximum = line.max()
            if not np.isfinite(maximum):
                continue
            floor = np.sort(line)[-top_k[row]] if 0 < top_k[row] < vocab_size else NEVER
            if top_p[row] < 1:
                weights = weight(line, floor, maximum, scale[row])
                least = top_p[row] * weights.sum()
                values = np.unique(line[line >= floor])
                # Rounding may leave the sum of all of them below `least`; then they all stay.
                floor = max((value for value in values if weights[line >= value].sum() >= least), default=floor)
            floors[row * width + column] = floor
