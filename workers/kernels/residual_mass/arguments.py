"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

from typing import Annotated

from workers.kernels.argument import Memory, Out, arguments
from workers.kernels.probabilities.shared_arguments import Verified


@arguments
class ResidualMass(Verified):
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    Written for rows of a temperature, columns from 1 up to the last usable draft.
    """

    residual: Annotated[Memory, Out("float32", "B * K * num_vocab_blocks")]
