"""Find the lowest logit that top-k and top-p keep, line by line."""

import numpy as np

from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.vectorised import NEVER, lines_of, scale_of, weight


def logit_floors(a: LogitFloors) -> None:
    """Set floors to the lowest logit of each line that stays."""
    width = 1 + a.num_speculative_tokens
    lines, scale = lines_of(a.logits, width, a.logits_stride, a.vocab_size), scale_of(a.temperature)
    a.floors[:] = NEVER
    for row in np.flatnonzero((a.temperature > 0) & ((a.top_k > 0) | (a.top_p < 1))):
        for column in range(1 + int(a.num_drafts[row])):
            line = lines[row, column]
            maximum = line.max()
            if not np.isfinite(maximum):
                continue
            floor = np.sort(line)[-a.top_k[row]] if 0 < a.top_k[row] < a.vocab_size else NEVER
            if a.top_p[row] < 1:
                weights = weight(line, floor, maximum, scale[row])
                least = a.top_p[row] * weights.sum()
                # Whatever is above a floor is likelier: few values are tried. Rounding may leave the sum of all of them
                # below `least`; then they all stay.
                values = np.unique(line[line >= floor])[::-1]
                floor = next((value for value in values if np.add.reduce(weights[line >= value]) >= least), floor)
            # One zero of two.
            a.floors[row * width + column] = floor + np.float32(0)
