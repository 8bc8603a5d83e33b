"""Sum the residual max(r * p - q, 0) per vocabulary block, for block verification."""

import numpy as np

from workers.kernels.probabilities.numpy import NONE, VerifiedRow
from workers.kernels.residual_mass.definition import ResidualMass


def residual_mass(a: ResidualMass) -> None:
    for index in (a.temperature > NONE).nonzero()[0].tolist():
        row = VerifiedRow(a, index)
        if row.usable > 1:
            _add_up(a, row)


def _add_up(a: ResidualMass, row: VerifiedRow) -> None:
    """Set the residuals of a row with verifiable draft tokens; 0 where they decide nothing."""
    first, count = row.first_draft, row.usable
    left = a.residual.reshape(-1, row.num_blocks)[first : first + count]
    noise, joint_ratio = a.accept_noise[first : first + count], row.joint_ratios()
    left[1:] = 0
    if noise[count - 1] < joint_ratio[count]:
        return
    for column in range(1, count):
        if noise[column - 1] < joint_ratio[column]:
            masses, total = row.residual_of(column, joint_ratio[column])
            left[column] = np.add.reduce(masses.reshape(-1, a.block_size), axis=1) / total
