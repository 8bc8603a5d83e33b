"""Definition of the floors of logits: a loop over lines, and over the values that may be the floor of one."""

import numpy as np
from numpy.typing import NDArray

from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.definition import NEVER, ZERO, added, scale_of, weight


def logit_floors(a: LogitFloors) -> None:
    """Set floors to the lowest logit of each line that stays."""
    width = 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        for column in range(width):
            line = row * width + column
            logits = a.logits[line * a.logits_stride :][: a.vocab_size]
            a.floors[line] = NEVER
            if a.temperature[row] > 0 and column <= a.num_drafts[row] and has_distribution(logits):
                floor = _top_k(logits, int(a.top_k[row]))
                # Turns the negative zero into the positive one.
                a.floors[line] = _top_p(logits, floor, a.top_p[row], scale_of(a.temperature[row])) + ZERO


def has_distribution(logits: NDArray[np.float32]) -> bool:
    """Tell whether no logit is NaN or inf, and not all are -inf."""
    return all(logit < np.inf for logit in logits) and any(logit > NEVER for logit in logits)


def _top_k(logits: NDArray[np.float32], top_k: int) -> np.float32:
    """Return the lowest of the top_k largest logits; -inf if all stay."""
    if not 0 < top_k < len(logits):
        return NEVER
    return np.float32(sorted(logits, reverse=True)[top_k - 1])


def _top_p(logits: NDArray[np.float32], floor: np.float32, top_p: np.float32, scale: np.float32) -> np.float32:
    """Return the largest logit that has, with all larger ones, top_p of the probability of those above a floor."""
    if not top_p < 1:
        return floor
    maximum = max(logits)
    least = top_p * added(weight(logit, floor, maximum, scale) for logit in logits)
    for value in sorted(set(logits), reverse=True):
        if value >= floor and added(weight(logit, value, maximum, scale) for logit in logits) >= least:
            return np.float32(value)
    # Rounding may leave the sum of all of them below `least`; then they all stay.
    return floor
