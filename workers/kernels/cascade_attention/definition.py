"""Cascade attention: sum the KV-cache blocks of a shared prefix only once."""

from workers.kernels.argument import arguments
from workers.kernels.attention.definition import Attention, attend


@arguments
class CascadeAttention(Attention):
    """Compute `attention` for rows that share `num_common_blocks` KV-cache blocks with row 0.

    The position of every token must be after the common blocks: it attends to all of them, without a mask. Sums are
    exact, so the order of additions does not matter.
    Source: cascade inference (FlashInfer, Ye et al. 2024) for the split into a shared part and a part per row.
    """

    num_common_blocks: int


def cascade_attention(a: CascadeAttention) -> None:
    """Compute attention; the first `num_common_blocks` blocks of every row are those of row 0."""
    attend(a, a.num_common_blocks)
