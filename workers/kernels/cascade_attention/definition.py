"""Attention that sums a prefix which all rows share once, then the rest of each row."""

from workers.kernels.argument import arguments
from workers.kernels.attention.definition import Attention, attend


@arguments
class CascadeAttention(Attention):
    """Do what `attention` does, for rows whose first `num_common_blocks` blocks are those of row 0.

    Every token of the batch must lie behind the common blocks: it attends to all of them, without a mask. Sums are
    exact, so what is added in which order does not matter.
    Source: cascade inference (FlashInfer, Ye et al. 2024) for the shape: a shared part, and a part a row.
    """

    num_common_blocks: int


def cascade_attention(a: CascadeAttention) -> None:
    """Do what attention does, with the common blocks of row 0 as the first blocks of every row."""
    attend(a, a.num_common_blocks)
