"""Weights (unnormalised probabilities) of tokens, in blocks and tiles of the vocabulary.

A token's weight is exp2((logit - maximum) * scale), with scale = log2(e) / temperature: its probability times a sum.
Ratios of probabilities are compared as products of weights and sums, without division. Rows are verified one by one: a
step has few rows, and a NumPy call on one row of logits costs as much as on several.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.numpy import shared
from workers.kernels.probabilities.shared_arguments import VerifiedDrafts

Floats = NDArray[np.float32]


def number(value: float) -> Floats:
    """Return a float as a read-only float32 array without dimensions."""
    return shared(np.array(value, dtype=np.float32))


LOG2E = np.float32(1.4426950408889634)
NEVER, NONE = number(-np.inf), number(0)
# The maximum of a block without any weight: finite, so that weights of -inf relative to it are 0.
LEAST = number(float(np.finfo(np.float32).min))


def above(logits: Floats, floor: Floats | np.float32) -> Floats:
    """Return the logits, with those below the floor and NaN set to -inf."""
    return np.where(logits >= floor, logits, NEVER)


def weight(logits: Floats, maximum: Any, scale: Any) -> Floats:
    """Return unnormalised probabilities of logits, relative to a finite row maximum."""
    exponent: Floats = logits - maximum
    exponent *= scale
    # Exact for integers; the float32 function is not exact everywhere.
    weights = exponent.astype(np.float64)
    return np.exp2(weights, weights).astype(np.float32)


def weight_of(logit: np.float32, maximum: np.float32, scale: np.float32) -> np.float32:
    """Return one logit's unnormalised probability, bitwise equal to that of `weight`."""
    return np.float32(np.exp2(np.float64((logit - maximum) * scale)))


def pick(masses: Floats, noise: Any) -> int:
    """Return the first index whose running sum exceeds noise * total.

    Noise is in [0, 1).

    An index without mass is returned only if no index has mass.
    """
    # Noise is at most 1 - 2^-24; its rounded product with any normal number is smaller than that number, so the last
    # running sum passes.
    running = np.add.accumulate(masses)
    return int((running > noise * running[-1]).argmax())


class Distribution(NamedTuple):
    """The distribution of a row of logits: block masses, maximum and total.

    Masses are relative to the maximum.
    """

    block_mass: Floats
    maximum: np.float32
    total: np.float32


class VerifiedRow:
    """A row's draft tokens, with the target and draft distributions that verify them.

    `usable` counts the draft tokens before the first that cannot be verified: not proposed, outside the vocabulary, or
    with an undefined distribution of target or draft. The row `lacks` a distribution if a draft token's draft
    distribution is undefined. The row `is_random` at a temperature above 0, and `is_drawn` if its draft tokens were
    also sampled.
    """

    def __init__(self, a: VerifiedDrafts, row: int) -> None:
        k, num_drafts, temperature = a.num_speculative_tokens, int(a.num_drafts[row]), a.temperature[row]
        self.num_blocks = -(-a.vocab_size // a.block_size)
        self.given = a
        self.first_line, self.first_draft, self.slot = row * (1 + k), row * k, int(a.draft_slots[row])
        self.is_random = bool(temperature > 0)
        self.is_drawn = self.is_random and not a.point_mass[row]
        self.scale = LOG2E / temperature if self.is_random else np.float32(1)
        self.drafts: list[int] = a.drafts[self.first_draft : self.first_draft + num_drafts].tolist()
        self._first_proposal = len(a.num_drafts) * (1 + k) + self.first_draft
        self.is_defined = self._are_defined(self.first_line, 1 + num_drafts)
        has_proposal = [not self.is_drawn] * num_drafts
        if self.is_drawn and num_drafts and self.slot >= 0:
            has_proposal = self._are_defined(self._first_proposal, num_drafts)
        self.usable, self.lacks = num_drafts, False
        for column in reversed(range(num_drafts)):
            is_token = 0 <= self.drafts[column] < a.vocab_size
            self.lacks |= is_token and not has_proposal[column]
            if not (is_token and self.is_defined[column] and has_proposal[column]):
                self.usable = column

    def _are_defined(self, line: int, count: int) -> list[bool]:
        """Return, for `count` rows of logits, whether each has a distribution.

        A row has one if no block is NaN and some block has a token.
        """
        block_max = self.given.block_max[line * self.num_blocks : (line + count) * self.num_blocks]
        if self.num_blocks > 1:
            block_max = np.maximum.reduce(block_max.reshape(count, self.num_blocks), axis=1)
        return [maximum > -np.inf for maximum in block_max.tolist()]

    def target(self, column: int) -> Distribution:
        """Return the target's distribution in a column that has one."""
        return self._distribution(self.first_line + column)

    def proposal(self, column: int) -> Distribution:
        """Return the distribution that a usable draft token was sampled from."""
        return self._distribution(self._first_proposal + column)

    def _distribution(self, line: int) -> Distribution:
        a, first, last = self.given, line * self.num_blocks, (line + 1) * self.num_blocks
        if self.num_blocks == 1:
            return Distribution(a.block_sum[first:last], a.block_max[first], a.block_sum[first])
        block_max = a.block_max[first:last]
        maximum = np.maximum.reduce(block_max)
        mass = a.block_sum[first:last] * weight(block_max, maximum, self.scale)
        return Distribution(mass, maximum, np.add.reduce(mass))

    def scaled_probabilities(self, column: int, token: int, joint_ratio: np.float32) -> tuple[np.float32, np.float32]:
        """Return two probabilities of a token: the target's times `joint_ratio`, and the drafter's.

        Both are on a common scale.

        The column must be that of a usable draft token; if that one is certain, `token` must be the draft token.
        """
        a, target, line = self.given, self.target(column), self.first_line + column
        logit, p = a.logits[line * a.logits_stride + token], np.float32(0)
        if logit >= a.floors[line]:
            p = joint_ratio * weight_of(logit, target.maximum, self.scale)
        if not self.is_drawn:
            return p, target.total
        proposal, line = self.proposal(column), self.slot * a.num_speculative_tokens + column
        q = weight_of(a.draft_logits[line * a.draft_stride + token], proposal.maximum, self.scale)
        return p * proposal.total, q * target.total

    def residual_of(self, column: int, joint_ratio: np.float32) -> tuple[Floats, np.float32]:
        """Return all tokens' residuals max(joint_ratio * p - q, 0), and the normalising divisor.

        Shape: [num_blocks * block_size], 0 past the vocabulary.
        """
        a, target, line = self.given, self.target(column), self.first_line + column
        logits = above(a.logits[line * a.logits_stride :][: a.vocab_size], a.floors[line])
        p = joint_ratio * weight(logits, target.maximum, self.scale)
        if self.is_drawn:
            proposal, line = self.proposal(column), self.slot * a.num_speculative_tokens + column
            q = weight(a.draft_logits[line * a.draft_stride :][: a.vocab_size], proposal.maximum, self.scale)
            total = proposal.total
        else:
            q, total = np.zeros(a.vocab_size, dtype=np.float32), np.float32(1)
            q[self.drafts[column]] = 1
        left = np.zeros(self.num_blocks * a.block_size, dtype=np.float32)
        left[: a.vocab_size] = np.maximum(p * total - q * target.total, NONE)
        return left, target.total * total

    def joint_ratios(self) -> list[np.float32]:
        """Return block verification's ratios: r[0] = 1, r[i] = min(1, r[i - 1] * p / q).

        It is 1 after none. Only usable draft tokens count.

        A draft token with draft probability 0 counts as certain if the target gives it probability.
        Source: arXiv 2403.10444, algorithm 2.
        """
        joint_ratio = [np.float32(1)]
        for column in range(self.usable):
            p, q = self.scaled_probabilities(column, self.drafts[column], np.float32(1))
            product = joint_ratio[-1] * p
            joint_ratio.append(min(product / q, np.float32(1)) if q > 0 else np.float32(product > 0))
        return joint_ratio
