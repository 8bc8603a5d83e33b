"""Token distributions for the sampler's reference kernels: float32, summed in order.

A vocabulary is cut into blocks, and a block into tiles. A token's weight is exp2((logit - maximum) * scale).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.kernels.probabilities.shared_arguments import Distributions, VerifiedDrafts

LOG2E = np.float32(1.4426950408889634)
NEVER = np.float32(-np.inf)
ZERO, ONE = np.float32(0), np.float32(1)


def scale_of(temperature: np.float32) -> np.float32:
    """Return the factor by which logits are multiplied for a temperature; 1 for temperature 0."""
    return LOG2E / temperature if temperature > 0 else ONE


def weight(logit: np.float32, floor: np.float32, maximum: np.float32, scale: np.float32) -> np.float32:
    """Return a logit's unnormalised probability; 0 for a logit below the floor, -inf or NaN."""
    if logit == NEVER or not logit >= floor:
        return ZERO
    return np.float32(np.exp2(np.float64((logit - maximum) * scale)))


def ordered_sum(masses: Iterable[np.float32]) -> np.float32:
    """Return the float32 sum of masses (unnormalised probabilities), added one after another."""
    total = ZERO
    for mass in masses:
        total = total + mass
    return total


def pick(masses: Sequence[np.float32], noise: np.float32) -> int:
    """Return the first index whose running sum exceeds noise * total.


    If there is none, return the last index with mass.

    An index without mass is never returned.
    """
    bound, running, last = noise * ordered_sum(masses), ZERO, 0
    for index, mass in enumerate(masses):
        running = running + mass
        if mass > 0:
            last = index
            if running > bound:
                break
    return last


@dataclass(frozen=True, slots=True)
class LogitsLine:
    """Distribution of a row of logits, with masses relative to the row's maximum."""

    logits: NDArray[np.float32]
    floor: np.float32
    scale: np.float32
    block_max: tuple[np.float32, ...]
    block_mass: tuple[np.float32, ...]
    maximum: np.float32
    total: np.float32

    def weight(self, token: int) -> np.float32:
        """Return the unnormalised probability of a token under this row of logits."""
        return weight(self.logits[token], self.floor, self.maximum, self.scale)


@dataclass(frozen=True, slots=True)
class PointMass:
    """Distribution of a draft token that was not sampled: all probability on that token."""

    draft: int
    total: np.float32 = ONE

    def weight(self, token: int) -> np.float32:
        """Return 1 for the draft token, 0 for every other token."""
        return ONE if token == self.draft else ZERO


def is_defined(block_max: Sequence[np.float32]) -> bool:
    """Return whether a row of logits defines a distribution: no NaN or inf, not all -inf.

    It has if no block maximum is NaN and some block has a token.
    """
    return not any(np.isnan(each) for each in block_max) and any(each > NEVER for each in block_max)


def logits_line(
    logits: NDArray[np.float32], floor: np.float32, scale: np.float32, block_max: Sequence[np.float32],
    block_sum: Sequence[np.float32],
) -> LogitsLine | None:  # fmt: skip
    """Return the distribution of a row of logits from the maxima and sums of its blocks.

    None if undefined.
    """
    if not is_defined(block_max):
        return None
    maximum = max(block_max)
    masses = []
    for own, total in zip(block_max, block_sum, strict=True):
        factor = weight(own, NEVER, maximum, scale)
        masses.append(total * factor if factor > 0 else ZERO)
    return LogitsLine(logits, floor, scale, tuple(block_max), tuple(masses), maximum, ordered_sum(masses))


def num_blocks_of(a: Distributions) -> int:
    """Return the number of vocabulary blocks."""
    return int(-(-a.vocab_size // a.block_size))


def target_blocks(a: VerifiedDrafts, row: int, column: int) -> slice:
    """Return the slice of block statistics for the target logits of a row's column."""
    line = row * (1 + a.num_speculative_tokens) + column
    return slice(line * num_blocks_of(a), (line + 1) * num_blocks_of(a))


def target_of(a: VerifiedDrafts, row: int, column: int) -> LogitsLine | None:
    """Return the target distribution of a row's column; None if undefined.

    None if undefined.
    """
    line, blocks = row * (1 + a.num_speculative_tokens) + column, target_blocks(a, row, column)
    logits = a.logits[line * a.logits_stride :][: a.vocab_size]
    return logits_line(logits, a.floors[line], scale_of(a.temperature[row]), a.block_max[blocks], a.block_sum[blocks])


def proposal_of(a: VerifiedDrafts, row: int, column: int) -> LogitsLine | PointMass | None:
    """Return the distribution from which a draft token was sampled; None if undefined."""
    k, num_blocks = a.num_speculative_tokens, num_blocks_of(a)
    if a.point_mass[row] != 0:
        return PointMass(int(a.drafts[row * k + column]))
    slot = int(a.draft_slots[row])
    if slot < 0:
        return None
    logits = a.draft_logits[(slot * k + column) * a.draft_stride :][: a.vocab_size]
    first = (len(a.num_drafts) * (1 + k) + row * k + column) * num_blocks
    blocks = slice(first, first + num_blocks)
    return logits_line(logits, NEVER, scale_of(a.temperature[row]), a.block_max[blocks], a.block_sum[blocks])


def is_verifiable(a: VerifiedDrafts, row: int, column: int) -> bool:
    """Return whether a draft token is a valid id, and has the distributions it needs.

    In a row of temperature 0 the draft distribution is not needed.
    """
    if not 0 <= a.drafts[row * a.num_speculative_tokens + column] < a.vocab_size:
        return False
    if not is_defined(a.block_max[target_blocks(a, row, column)]):
        return False
    return a.temperature[row] == 0 or proposal_of(a, row, column) is not None


def num_usable(a: VerifiedDrafts, row: int) -> int:
    """Return the number of a row's draft tokens before the first that is not verifiable."""
    for column in range(a.num_drafts[row]):
        if not is_verifiable(a, row, column):
            return column
    return int(a.num_drafts[row])


def both_distributions(a: VerifiedDrafts, row: int, column: int) -> tuple[LogitsLine, LogitsLine | PointMass]:
    """Return target and draft distribution of a verifiable draft token."""
    target, proposal = target_of(a, row, column), proposal_of(a, row, column)
    assert target is not None
    assert proposal is not None
    return target, proposal


def scaled_probabilities(
    target: LogitsLine, proposal: LogitsLine | PointMass, token: int, joint_ratio: np.float32 = ONE
) -> tuple[np.float32, np.float32]:
    """Return two probabilities of a token: the target's times `joint_ratio`, and the drafter's.

    Both are on a common scale.
    """
    return joint_ratio * target.weight(token) * proposal.total, proposal.weight(token) * target.total


def joint_ratios(a: VerifiedDrafts, row: int, usable: int) -> list[np.float32]:
    """Return block verification's ratios: r[0] = 1, r[i] = min(1, r[i - 1] * p / q).

    It is 1 after none. Only usable draft tokens count.

    A draft token with draft probability 0 counts as certain if the target gives it probability.
    Source: arXiv 2403.10444, algorithm 2.
    """
    joint_ratio = [ONE]
    for column in range(usable):
        draft = int(a.drafts[row * a.num_speculative_tokens + column])
        p, q = scaled_probabilities(*both_distributions(a, row, column), draft)
        if q > 0:
            joint_ratio.append(min(joint_ratio[column] * p / q, ONE))
        else:
            joint_ratio.append(ONE if joint_ratio[column] * p > 0 else ZERO)
    return joint_ratio


def residual_of(
    target: LogitsLine, proposal: LogitsLine | PointMass, joint_ratio: np.float32, token: int
) -> np.float32:
    """Return a token's residual max(joint_ratio * p - q, 0): p target, q draft probability."""
    p, q = scaled_probabilities(target, proposal, token, joint_ratio)
    return max(p - q, ZERO)
