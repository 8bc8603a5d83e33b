"""Distributions as the definitions of the sampler's ops see them: float32 numbers, added up one after the other.

A vocabulary is cut into blocks, and a block into tiles. A token's weight is exp2((logit - maximum) * scale).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.kernels.probabilities.shared_arguments import Distributions, Verified

LOG2E = np.float32(1.4426950408889634)
NEVER = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


def scale_of(temperature: np.float32) -> np.float32:
    """Return the factor of logits at a temperature; 1 where that is 0."""
    return LOG2E / temperature if temperature > 0 else ONE


def weight(logit: np.float32, floor: np.float32, maximum: np.float32, scale: np.float32) -> np.float32:
    """Return the weight of a logit at or above the floor; 0 of another, of -inf, and of NaN."""
    if logit == NEVER or not logit >= floor:
        return ZERO
    return np.float32(np.exp2(np.float64((logit - maximum) * scale)))


def added(masses: Iterable[np.float32]) -> np.float32:
    """Return the sum of masses, added from the first to the last."""
    total = ZERO
    for mass in masses:
        total = total + mass
    return total


def pick(masses: Sequence[np.float32], noise: np.float32) -> int:
    """Return the first index at which the running sum passes the noise times the total; the last with a mass if none.

    An index without mass is never picked.
    """
    bound, running, last = noise * added(masses), ZERO, 0
    for index, mass in enumerate(masses):
        running = running + mass
        if mass > 0:
            last = index
            if running > bound:
                break
    return last


@dataclass(frozen=True, slots=True)
class LogitsLine:
    """A line of logits that has a distribution; block masses and total are relative to its maximum."""

    logits: NDArray[np.float32]
    floor: np.float32
    scale: np.float32
    block_max: tuple[np.float32, ...]
    block_mass: tuple[np.float32, ...]
    maximum: np.float32
    total: np.float32

    def weight(self, token: int) -> np.float32:
        """Return the weight of a token."""
        return weight(self.logits[token], self.floor, self.maximum, self.scale)


@dataclass(frozen=True, slots=True)
class PointMass:
    """The distribution of a draft that is certain."""

    draft: int
    total: np.float32 = ONE

    def weight(self, token: int) -> np.float32:
        """Return the weight of a token."""
        return ONE if token == self.draft else ZERO


def is_defined(block_max: Sequence[np.float32]) -> bool:
    """Tell whether a line has a distribution: no block has a NaN, and some block a token."""
    return not any(np.isnan(each) for each in block_max) and any(each > NEVER for each in block_max)


def line_of(
    logits: NDArray[np.float32], floor: np.float32, scale: np.float32, block_max: Sequence[np.float32],
    block_sum: Sequence[np.float32],
) -> LogitsLine | None:  # fmt: skip
    """Return the distribution of logits from the maxima and sums of their blocks; none if it is undefined."""
    if not is_defined(block_max):
        return None
    maximum = max(block_max)
    masses = []
    for own, total in zip(block_max, block_sum, strict=True):
        factor = weight(own, NEVER, maximum, scale)
        masses.append(total * factor if factor > 0 else ZERO)
    return LogitsLine(logits, floor, scale, tuple(block_max), tuple(masses), maximum, added(masses))


def num_blocks_of(a: Distributions) -> int:
    """Return the number of blocks of the vocabulary."""
    return int(-(-a.vocab_size // a.block_size))


def target_blocks(a: Verified, row: int, column: int) -> slice:
    """Return the slice of the statistics of a column's target."""
    line = row * (1 + a.num_speculative_tokens) + column
    return slice(line * num_blocks_of(a), (line + 1) * num_blocks_of(a))


def target_of(a: Verified, row: int, column: int) -> LogitsLine | None:
    """Return the target's distribution for a column up to the row's drafts; none if it is undefined."""
    line, blocks = row * (1 + a.num_speculative_tokens) + column, target_blocks(a, row, column)
    logits = a.logits[line * a.logits_stride :][: a.vocab_size]
    return line_of(logits, a.floors[line], scale_of(a.temperature[row]), a.block_max[blocks], a.block_sum[blocks])


def proposal_of(a: Verified, row: int, column: int) -> LogitsLine | PointMass | None:
    """Return the distribution that a draft was drawn from; none if it is undefined."""
    k, num_blocks = a.num_speculative_tokens, num_blocks_of(a)
    if a.point_mass[row] != 0:
        return PointMass(int(a.drafts[row * k + column]))
    slot = int(a.draft_slots[row])
    if slot < 0:
        return None
    logits = a.draft_logits[(slot * k + column) * a.draft_stride :][: a.vocab_size]
    first = (len(a.num_drafts) * (1 + k) + row * k + column) * num_blocks
    blocks = slice(first, first + num_blocks)
    return line_of(logits, NEVER, scale_of(a.temperature[row]), a.block_max[blocks], a.block_sum[blocks])


def is_verifiable(a: Verified, row: int, column: int) -> bool:
    """Tell whether a draft was proposed, is in the vocabulary, and has a distribution on both sides.

    A row of temperature 0 needs none that its drafts were drawn from.
    """
    if not 0 <= a.drafts[row * a.num_speculative_tokens + column] < a.vocab_size:
        return False
    if not is_defined(a.block_max[target_blocks(a, row, column)]):
        return False
    return a.temperature[row] == 0 or proposal_of(a, row, column) is not None


def num_usable(a: Verified, row: int) -> int:
    """Return the number of drafts of a row before the first that cannot be verified."""
    for column in range(a.num_drafts[row]):
        if not is_verifiable(a, row, column):
            return column
    return int(a.num_drafts[row])


def both_of(a: Verified, row: int, column: int) -> tuple[LogitsLine, LogitsLine | PointMass]:
    """Return the target's distribution of a draft that can be verified, and the one that it was drawn from."""
    target, proposal = target_of(a, row, column), proposal_of(a, row, column)
    assert target is not None
    assert proposal is not None
    return target, proposal


def odds_of(
    target: LogitsLine, proposal: LogitsLine | PointMass, token: int, odds: np.float32 = ONE
) -> tuple[np.float32, np.float32]:
    """Return `odds` times the target's probability of a token, and its draft probability, on a common scale."""
    return odds * target.weight(token) * proposal.total, proposal.weight(token) * target.total


def block_odds(a: Verified, row: int, usable: int) -> list[np.float32]:
    """Return, after each number of usable drafts, the weight min(1, ...) of block verification; it is 1 after none.

    A draft without draft probability is as good as certain if the target knows it.
    Source: arXiv 2403.10444, algorithm 2.
    """
    odds = [ONE]
    for column in range(usable):
        draft = int(a.drafts[row * a.num_speculative_tokens + column])
        p, q = odds_of(*both_of(a, row, column), draft)
        if q > 0:
            odds.append(min(odds[column] * p / q, ONE))
        else:
            odds.append(ONE if odds[column] * p > 0 else ZERO)
    return odds


def left_of(target: LogitsLine, proposal: LogitsLine | PointMass, odds: np.float32, token: int) -> np.float32:
    """Return the residual of a token: `odds` times the target's probability less the draft's, or 0."""
    p, q = odds_of(target, proposal, token, odds)
    return max(p - q, ZERO)
