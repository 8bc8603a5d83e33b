"""Weights of tokens over blocks and tiles of the vocabulary, as the sampler's ops see them.

A token's weight is exp2((logit - maximum) * scale), where scale = log2(e) / temperature: its probability times a sum.
Whatever is written as a ratio of probabilities is compared as products of weights and sums: nothing is divided.
Only lines that have a distribution, and that something depends on, are looked at.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import ZERO, below, integer, shared, word, words
from workers.kernels.probabilities.shared_arguments import Verified

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def number(value: float) -> Floats:
    """Return a float32, read-only."""
    return shared(np.array(value, dtype=np.float32))


LOG2E = number(1.4426950408889634)
NEVER, NONE, ONE = number(-np.inf), number(0), number(1)
# A block without any weight has a maximum all the same: this one, of which -inf is infinitely less.
LEAST = number(float(np.finfo(np.float32).min))


def scale_of(temperature: Floats) -> Floats:
    """Return what logits are multiplied by; 1 where the temperature is 0."""
    scale = np.ones_like(temperature)
    return np.divide(LOG2E, temperature, scale, where=temperature > NONE)


def above(logits: Floats, floor: Floats) -> Floats:
    """Return the logits at or above the floor; -inf instead of others, and of NaN."""
    return np.where(logits >= floor, logits, NEVER)


def weight(logits: Floats, maximum: Floats, scale: Floats) -> Floats:
    """Return the weights of logits, relative to a maximum that is finite."""
    exponent: Floats = logits - maximum
    exponent *= scale
    # Exact for integers, which the single-precision function is not everywhere.
    weights = exponent.astype(np.float64)
    return np.exp2(weights, weights).astype(np.float32)


def lines_of(logits: Floats, columns: int, stride: int, vocab_size: int) -> Floats:
    """Return flat logits as [rows, columns, V]: no rows if there are no logits."""
    num_rows = len(logits) // max(columns * stride, 1)
    return logits.reshape(num_rows, columns, stride)[:, :, :vocab_size]


def pick(masses: Floats, noise: Floats) -> Integers:
    """Return, of each line of masses, the index in which the running sum passes the noise times the total.

    An index without mass is never picked, unless there is no other. Shapes: masses [N, M], noise [N] in [0, 1).
    """
    # Noise is 1 - 2^-24 at most: times that, and rounded, any normal number is less, so the last running sum passes.
    running = np.add.accumulate(masses, axis=1)
    picked: Integers = (running > (noise * running[:, -1])[:, None]).argmax(axis=1)
    return picked


@dataclass(frozen=True, slots=True)
class Sums:
    """Distributions: the maximum and the total of all blocks, and their masses relative to that maximum.

    Shapes: block_mass [N, num_blocks]; the others [N].
    """

    block_mass: Floats
    maximum: Floats
    total: Floats


def are_defined(block_max: Floats) -> Flags:
    """Tell which lines have a distribution: no block is NaN, and not all are without a token."""
    defined: Flags = np.maximum.reduce(block_max, axis=1) > NEVER
    return defined


def sums(block_max: Floats, block_sum: Floats, scale: Floats) -> Sums:
    """Add up the blocks [N, num_blocks] of lines that have a distribution, at scales [N]."""
    if block_max.shape[1] == 1:
        return Sums(block_sum, block_max[:, 0], block_sum[:, 0])
    maximum = np.maximum.reduce(block_max, axis=1)
    mass = block_sum * weight(block_max, maximum[:, None], scale[:, None])
    return Sums(mass, maximum, np.add.reduce(mass, axis=1))


class Batch:
    """Drafts, and the lines of logits that verify them: of the target in each column, and those they were drawn from.

    A target's line is row * (1 + K) + column, a draft's row * K + column. `usable` counts the drafts of a row before
    the first that cannot be verified: never proposed, outside the vocabulary, or without a distribution on either side;
    in a row that `lacks` one a draft was drawn from no distribution. Rows are `random` at a temperature above 0, and
    `drawn` if their drafts are, too.
    """

    def __init__(self, a: Verified) -> None:
        k, num_rows = a.num_speculative_tokens, len(a.num_drafts)
        self.num_blocks = num_blocks = -(-a.vocab_size // a.block_size)
        split = num_rows * (1 + k)
        self.given = a
        block_max, block_sum = a.block_max.reshape(-1, num_blocks), a.block_sum.reshape(-1, num_blocks)
        self.block_max, self.draft_max = block_max[:split], block_max[split:]
        self.block_sum, self.draft_sum = block_sum[:split], block_sum[split:]
        self.scale, self.random = scale_of(a.temperature), a.temperature > NONE
        self.drawn = self.random & (a.point_mass == ZERO)
        self.is_defined = are_defined(self.block_max)
        self.lacks: Flags = np.zeros(num_rows, dtype=np.bool_)
        num_drafts: Integers = a.num_drafts
        is_usable = below(1 + k).take(num_drafts, axis=0)
        # As a word no negative number is in the vocabulary.
        is_usable[:, :k] &= (words(a.drafts) < word(a.vocab_size)).reshape(num_rows, k)
        if k and np.count_nonzero(self.drawn):
            has_line: Flags = are_defined(self.draft_max).reshape(num_rows, k)
            has_line &= (a.draft_slots >= ZERO)[:, None]
            has_line |= ~self.drawn[:, None]
            self.lacks |= (is_usable[:, :k] & ~has_line).any(axis=1)
            is_usable[:, :k] &= has_line
        is_usable &= self.is_defined.reshape(num_rows, 1 + k)
        self.usable: Integers = is_usable.argmin(axis=1)

    def target(self, lines: Integers, rows: Integers) -> Sums:
        """Return the target's distributions on lines of rows."""
        return sums(self.block_max.take(lines, axis=0), self.block_sum.take(lines, axis=0), self.scale.take(rows))

    def proposal(self, lines: Integers, rows: Integers) -> Sums:
        """Return what the drafts on lines of rows were drawn from."""
        return sums(self.draft_max.take(lines, axis=0), self.draft_sum.take(lines, axis=0), self.scale.take(rows))

    def odds_of(self, rows: Integers, columns: Integers, tokens: Integers, odds: Floats = ONE) -> tuple[Floats, Floats]:
        """Return what `odds` times the target's and the draft probability of tokens are to each other, [N].

        The columns are those of drafts that can be verified; of a draft that is certain the token is that draft.
        """
        a, scale = self.given, self.scale.take(rows)
        lines = rows * integer(1 + a.num_speculative_tokens) + columns
        target = self.target(lines, rows)
        logits = above(a.logits.take(lines * integer(a.logits_stride) + tokens), a.floors.take(lines))
        p, q = odds * weight(logits, target.maximum, scale), target.total
        (drawn,) = self.drawn.take(rows).nonzero()
        if len(drawn):
            rows, columns, tokens = rows[drawn], columns[drawn], tokens[drawn]
            lines = rows * integer(a.num_speculative_tokens) + columns
            proposal = self.proposal(lines, rows)
            lines = a.draft_slots.take(rows) * integer(a.num_speculative_tokens) + columns
            logits = a.draft_logits.take(lines * integer(a.draft_stride) + tokens)
            p[drawn] *= proposal.total
            q = q.copy()
            q[drawn] *= weight(logits, proposal.maximum, scale[drawn])
        return p, q

    def left_of(self, row: int, column: int, odds: np.float32) -> tuple[Floats, np.float32]:
        """Return max(odds * p - q, 0) of every token behind `column` drafts of a row, and what that is relative to.

        Shape: [num_blocks * block_size], 0 behind the vocabulary.
        """
        a, k = self.given, self.given.num_speculative_tokens
        line, of_row, scale = row * (1 + k) + column, np.array([row]), self.scale[row]
        target = self.target(np.array([line]), of_row)
        first = line * a.logits_stride
        logits = above(a.logits[first : first + a.vocab_size], a.floors[line])
        left = np.zeros(self.num_blocks * a.block_size, dtype=np.float32)
        p = odds * weight(logits, target.maximum, scale)
        if self.drawn[row]:
            proposal = self.proposal(np.array([row * k + column]), of_row)
            first = (int(a.draft_slots[row]) * k + column) * a.draft_stride
            q = weight(a.draft_logits[first : first + a.vocab_size], proposal.maximum, scale)
            total = proposal.total[0]
        else:
            q, total = np.zeros(a.vocab_size, dtype=np.float32), np.float32(1)
            q[a.drafts[row * k + column]] = 1
        left[: a.vocab_size] = np.maximum(p * total - q * target.total, NONE)
        return left, target.total[0] * total

    def block_odds(self) -> Floats:
        """Return for each row, after each number of usable drafts, the weight min(1, ...) of block verification.

        It is 1 after none, and nobody asks for those of greedy rows. A draft without draft probability is as good as
        certain if the target knows it. Shape: [B, 1 + K]. Source: arXiv 2403.10444, algorithm 2.
        """
        k = self.given.num_speculative_tokens
        odds = np.ones((len(self.usable), 1 + k), dtype=np.float32)
        rows, columns = (below(1 + k).take(self.usable, axis=0) & self.random[:, None]).nonzero()
        of_drafts = self.odds_of(rows, columns, self.given.drafts.take(rows * integer(k) + columns))
        # One after the other: in a row each follows from the one before.
        for row, column, p, q in zip(rows.tolist(), columns.tolist(), *of_drafts, strict=True):
            product = odds[row, column] * p
            odds[row, column + 1] = min(product / q, ONE) if q > 0 else product > 0
        return odds
