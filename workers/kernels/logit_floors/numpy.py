"""Find the floor of each row of logits: the lowest logit that top-k and top-p keep."""

import numpy as np

from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.probabilities.numpy import LOG2E, Floats, above, weight

_LOWEST = np.float32(-np.inf)
# Larger than the rounding error of a sum of float32 numbers.
ROUNDING = 1e-5


def logit_floors(a: LogitFloors) -> None:
    a.floors.fill(_LOWEST)
    limits = zip(a.temperature, a.top_k.tolist(), a.top_p, strict=True)
    for row, (temperature, top_k, top_p) in enumerate(limits):
        if not (temperature > 0 and (top_k > 0 or top_p < 1)):
            continue
        first = row * (1 + a.num_speculative_tokens)
        for line in range(first, first + 1 + int(a.num_drafts[row])):
            logits = a.logits[line * a.logits_stride :][: a.vocab_size]
            a.floors[line] = _floor(logits, LOG2E / temperature, top_k, top_p)


def _floor(logits: Floats, scale: np.float32, top_k: int, top_p: np.float32) -> np.float32:
    """Return the floor of one row; -inf for a row that defines no distribution."""
    ordered = logits.copy()
    ordered.sort()
    # NaN is sorted last.
    largest = ordered[-1]
    if not -np.inf < largest < np.inf:
        return _LOWEST
    floor: np.float32 = ordered[-top_k] if 0 < top_k < len(ordered) else _LOWEST
    if top_p < 1:
        weights = weight(logits if floor == _LOWEST else above(logits, floor), largest, scale)
        floor = _top_p(logits, ordered, weights, floor, top_p * np.add.reduce(weights))
    # Turns -0 into +0.
    return floor + np.float32(0)


def _top_p(logits: Floats, ordered: Floats, weights: Floats, floor: np.float32, least: np.float32) -> np.float32:
    """Return the lowest logit that top-p keeps of the logits at or above `floor`.

    It and all larger logits have at least `least` of the weights [V].

    Rounding may leave the sum of all weights below `least`; then all logits at or above `floor` are kept.
    """
    lightest_first = weights.copy()
    lightest_first.sort()
    # Any shorter prefix is clearly below `least`, in every order of addition.
    first = np.add.accumulate(lightest_first[::-1], dtype=np.float64).searchsorted(float(least) * (1 - ROUNDING))
    tried = (value for value in ordered[::-1][first:] if np.add.reduce(weights[logits >= value]) >= least)
    return max(next(tried, floor), floor)
