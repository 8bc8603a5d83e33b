"""Make memory that changes hands unreadable."""

from workers.kernels.signature import POISON, In, InOut


def poison(blocks: In, kv: InOut, drafter_kv: InOut, num_blocks: int, block_size: int) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches.

    Shapes: blocks [at least num_blocks]; kv, drafter_kv [blocks of the pool * block_size] uint64.
    """
    chosen = blocks[:num_blocks]
    kv.reshape(-1, block_size)[chosen] = POISON
    drafter_kv.reshape(-1, block_size)[chosen] = POISON
