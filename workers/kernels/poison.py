"""Make memory that changes hands unreadable."""

from workers.kernels.arithmetic import arange
from workers.kernels.signature import POISON, In, InOut


def poison(blocks: In, kv: InOut, drafter_kv: InOut, num_blocks: int, block_size: int) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches.

    Shapes: blocks [at least num_blocks]; kv, drafter_kv [blocks of the pool * block_size] uint64.
    """
    slots = (blocks[:num_blocks, None] * block_size + arange(block_size)).ravel()
    kv[slots] = POISON
    drafter_kv[slots] = POISON
