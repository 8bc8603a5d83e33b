"""Find the floor of each row of logits: the lowest logit that top-k and top-p keep."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.probabilities.definition import NEVER, ZERO, ordered_sum, scale_of, weight

# A longer row is read in blocks, one program each.
SHORT_LINE = 8192
BLOCK_SIZE = 4096
# Limit on the candidates (logits that may be the floor) of a row.
CANDIDATES_MAX = 8192
# Numbers that the workspace holds per block, and per row of logits.
NUMBERS_PER_BLOCK = 4
NUMBERS_PER_LINE = 2


def workspace_length_of(vocab_size: int) -> int:
    """Return the workspace length per row of logits: numbers and candidates of its blocks."""
    if vocab_size <= SHORT_LINE:
        return NUMBERS_PER_LINE
    return NUMBERS_PER_LINE + NUMBERS_PER_BLOCK * -(-vocab_size // BLOCK_SIZE) + CANDIDATES_MAX


@arguments
class LogitFloors(Arguments):
    """Set `floors` to the lowest logit that each row keeps.

    First the top_k largest logits are kept (0: all), and of these the smallest set of largest logits with at least
    top_p of their probability (1: all). Logits equal to a kept one are kept too. The floor is -inf for rows of
    temperature 0, for columns past the draft tokens, and for rows of logits with NaN or inf, or only -inf. A zero floor
    is +0. The workspace holds nothing useful afterwards.
    """

    logits: Annotated[Memory, In("float32", "B * (1 + K) * logits_stride")]
    temperature: Annotated[Memory, In("float32", "B")]
    top_k: Annotated[Memory, In("int64", "B")]
    top_p: Annotated[Memory, In("float32", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    floors: Annotated[Memory, Out("float32", "B * (1 + K)")]
    workspace: Annotated[Memory, Out("float32", "B * (1 + K) * workspace_length", of=("floors_workspace",))]
    num_speculative_tokens: int
    vocab_size: int
    logits_stride: int


def logit_floors(a: LogitFloors) -> None:
    """Set `floors` to the lowest logit that each row keeps."""
    width = 1 + a.num_speculative_tokens
    for row in range(len(a.num_drafts)):
        for column in range(width):
            line = row * width + column
            logits = a.logits[line * a.logits_stride :][: a.vocab_size]
            a.floors[line] = NEVER
            if a.temperature[row] > 0 and column <= a.num_drafts[row] and has_distribution(logits):
                floor = _top_k(logits, int(a.top_k[row]))
                # Turns -0 into +0.
                a.floors[line] = _top_p(logits, floor, a.top_p[row], scale_of(a.temperature[row])) + ZERO


def has_distribution(logits: NDArray[np.float32]) -> bool:
    """Return whether a row of logits defines a distribution: no NaN or inf, not all -inf."""
    return all(logit < np.inf for logit in logits) and any(logit > NEVER for logit in logits)


def _top_k(logits: NDArray[np.float32], top_k: int) -> np.float32:
    """Return the lowest of the top_k largest logits; -inf if all are kept."""
    if not 0 < top_k < len(logits):
        return NEVER
    return np.float32(sorted(logits, reverse=True)[top_k - 1])


def _top_p(logits: NDArray[np.float32], floor: np.float32, top_p: np.float32, scale: np.float32) -> np.float32:
    """Return the lowest logit that top-p keeps of the logits at or above `floor`.

    It and all larger logits have at least top_p of their probability.
    """
    if not top_p < 1:
        return floor
    maximum = max(logits)
    least = top_p * ordered_sum(weight(logit, floor, maximum, scale) for logit in logits)
    for value in sorted(set(logits), reverse=True):
        if value >= floor and ordered_sum(weight(logit, value, maximum, scale) for logit in logits) >= least:
            return np.float32(value)
    # Rounding may leave the sum of all of them below `least`; then all are kept.
    return floor
