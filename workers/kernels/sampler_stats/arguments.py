"""Reduce the logits of a step to maxima and sums over blocks of the vocabulary: the one pass over all of them."""

from typing import Annotated

from workers.kernels.argument import Memory, Out, arguments
from workers.kernels.probabilities.shared_arguments import Distributions


@arguments
class SamplerStats(Distributions):
    """Find the maximum of each block of the vocabulary, and add up its weights relative to that maximum.

    Rows of temperature 0 have no sums. Columns past the drafts, and the draft logits of rows of temperature 0 and
    of rows whose drafts have all the probability of their draft distribution (point_mass), are not read; nothing is
    written for them. A block with NaN or inf has the maximum NaN.
    """

    block_max: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_sum: Annotated[Memory, Out("float32", "B * (1 + 2 * K) * num_vocab_blocks")]
    block_best: Annotated[Memory, Out("int64", "B * (1 + K) * num_vocab_blocks")]
    tile_sum: Annotated[Memory, Out("float32", "B * (1 + K) * num_vocab_blocks * num_tiles")]
    tile_size: int
