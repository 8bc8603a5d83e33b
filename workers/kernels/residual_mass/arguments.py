"""Sum the residual of the target after drafts, for block verification, block by block of the vocabulary."""

from typing import Annotated

from workers.kernels.argument import In, Memory, Out, arguments
from workers.kernels.probabilities.shared_arguments import Verified


@arguments
class ResidualMass(Verified):
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    Written for rows of a temperature, columns from 1 up to the last usable draft. The sum is 0, and nothing is read,
    where it decides nothing: in a row whose usable drafts are all kept, and after drafts whose noise is not below
    their odds, which no sum exceeds. Where the sums of whole blocks tell already what it decides, it may be
    any other that decides the same.
    """

    accept_noise: Annotated[Memory, In("float32", "B * K")]
    residual: Annotated[Memory, Out("float32", "B * K * num_vocab_blocks")]
