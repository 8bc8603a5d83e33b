"""Find the lowest logit that top-k and top-p keep, line by line."""

from typing import Any

import numpy as np

from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.vectorised import NEVER, NONE, above, lines_of, scale_of, weight


def logit_floors(a: LogitFloors) -> None:
    """Set floors to the lowest logit of each line that stays."""
    width = 1 + a.num_speculative_tokens
    lines, scale = lines_of(a.logits, width, a.logits_stride, a.vocab_size), scale_of(a.temperature)
    a.floors.fill(NEVER)
    for row in ((a.temperature > NONE) & ((a.top_k > 0) | (a.top_p < 1))).nonzero()[0]:
        for column in range(1 + a.num_drafts[row]):
            a.floors[row * width + column] = _floor(lines[row, column], scale[row], a.top_k[row], a.top_p[row])


def _floor(line: Any, scale: Any, top_k: Any, top_p: Any) -> Any:
    """Return the lowest logit of a line that stays; of a line without a distribution all do."""
    ordered = np.sort(line)
    # What is no number comes last.
    if not -np.inf < ordered[-1] < np.inf:
        return NEVER
    floor = ordered[-top_k] if 0 < top_k < len(line) else NEVER
    if top_p < 1:
        weights = weight(above(line, floor), ordered[-1], scale)
        least = top_p * np.add.reduce(weights)
        # Whatever is above a floor is likelier: few values are tried. Rounding may leave the sum of all of them
        # below `least`; then they all stay.
        likeliest_first = ordered[ordered >= floor][::-1]
        floor = next((value for value in likeliest_first if np.add.reduce(weights[line >= value]) >= least), floor)
    # One zero of two.
    return floor + np.float32(0)
