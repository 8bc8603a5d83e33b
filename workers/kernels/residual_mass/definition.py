"""Sum the residual max(r * p - q, 0) per vocabulary block, for block verification."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from workers.kernels.argument import In, Memory, Out, arguments
from workers.kernels.probabilities.definition import (
    ZERO,
    both_distributions,
    joint_ratios,
    num_blocks_of,
    num_usable,
    ordered_sum,
    residual_of,
)
from workers.kernels.probabilities.shared_arguments import VerifiedDrafts


@arguments
class ResidualMass(VerifiedDrafts):
    """Block verification: sum max(joint_ratio * p - q, 0) per vocabulary block and draft token.

    Not after none and all of the usable draft tokens.

    Written for rows with a temperature above 0, in columns from 1 to the last usable draft token. The sum is 0, and
    nothing is read, where it decides nothing: in a row that keeps all usable draft tokens, and after draft tokens with
    noise at or above their joint ratio, which no sum exceeds. Where block statistics already give the decision, any sum
    with the same decision is allowed.
    """

    accept_noise: Annotated[Memory, In("float32", "B * K")]
    residual: Annotated[Memory, Out("float32", "B * K * num_vocab_blocks")]


def residual_mass(a: ResidualMass) -> None:
    """Sum max(joint_ratio * p - q, 0) over each vocabulary block, for each number of drafts.

    p is a token's target probability, q its draft probability, joint_ratio an element of `joint_ratios`.

    Not after none and all of the usable draft tokens.
    """
    for row in range(len(a.num_drafts)):
        if a.temperature[row] > 0:
            usable = num_usable(a, row)
            joint_ratio = joint_ratios(a, row, usable)
            for column in range(1, usable):
                for block in range(num_blocks_of(a)):
                    place = (row * a.num_speculative_tokens + column) * num_blocks_of(a) + block
                    decides = _decides(a, row, column, joint_ratio)
                    a.residual[place] = _residual(a, row, column, joint_ratio[column], block) if decides else ZERO


def _decides(a: ResidualMass, row: int, column: int, joint_ratio: Sequence[np.float32]) -> bool:
    """Return whether a residual can change how many drafts block verification accepts."""
    noise = a.accept_noise[row * a.num_speculative_tokens :]
    usable = len(joint_ratio) - 1
    return bool(noise[usable - 1] >= joint_ratio[usable] and noise[column - 1] < joint_ratio[column])


def _residual(a: ResidualMass, row: int, column: int, joint_ratio: np.float32, block: int) -> np.float32:
    """Return the residual probability of a vocabulary block after `column` accepted draft tokens."""
    target, proposal = both_distributions(a, row, column)
    tokens = range(block * a.block_size, min((block + 1) * a.block_size, a.vocab_size))
    left = ordered_sum(residual_of(target, proposal, joint_ratio, token) for token in tokens)
    return left / (target.total * proposal.total)
