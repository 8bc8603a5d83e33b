"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

import numpy as np

from workers.kernels.probabilities.vectorised import Batch
from workers.kernels.residual_mass.arguments import ResidualMass


def residual_mass(a: ResidualMass) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all."""
    num_rows, k, batch = len(a.num_drafts), a.num_speculative_tokens, Batch(a)
    left, noise = a.residual.reshape(num_rows, k, batch.num_blocks), a.accept_noise.reshape(num_rows, k)
    odds = batch.block_odds()
    for row in batch.random.nonzero()[0]:
        usable = int(batch.usable[row])
        left[row, 1:usable] = 0
        if usable < 2 or noise[row, usable - 1] < odds[row, usable]:
            continue
        for count in range(1, usable):
            if noise[row, count - 1] < odds[row, count]:
                masses, total = batch.left_of(int(row), count, odds[row, count])
                left[row, count] = np.add.reduce(masses.reshape(-1, a.block_size), axis=1) / total
