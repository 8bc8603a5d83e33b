"""Definition of what block verification leaves of the target: a loop over rows, columns, blocks and tokens."""

import numpy as np

from workers.kernels.probabilities.definition import added, block_odds, both_of, left_of, num_blocks_of, num_usable
from workers.kernels.residual_mass.arguments import ResidualMass


def residual_mass(a: ResidualMass) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all."""
    for row in range(len(a.num_drafts)):
        if a.temperature[row] > 0:
            usable = num_usable(a, row)
            odds = block_odds(a, row, usable)
            for column in range(1, usable):
                for block in range(num_blocks_of(a)):
                    place = (row * a.num_speculative_tokens + column) * num_blocks_of(a) + block
                    a.residual[place] = _residual(a, row, column, odds[column], block)


def _residual(a: ResidualMass, row: int, column: int, odds: np.float32, block: int) -> np.float32:
    """Return the sum of a block behind `column` drafts that have these odds."""
    target, proposal = both_of(a, row, column)
    tokens = range(block * a.block_size, min((block + 1) * a.block_size, a.vocab_size))
    left = added(left_of(target, proposal, odds, token) for token in tokens)
    return left / (target.total * proposal.total)
