"""Make memory that changes hands unreadable."""

from workers.kernels.signature import POISON, In, InOut


def poison(blocks: In, kv: InOut, drafter_kv: InOut, num_blocks: int, block_size: int) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches.

    Shapes: blocks [at least num_blocks]; kv, drafter_kv [blocks of the pool * block_size] uint64.
    """
    chosen = blocks[:num_blocks]
    kv.reshape(-1, block_size)[chosen] = POISON
    drafter_kv.reshape(-1, block_size)[chosen] = POISON


def poison_states(blocks: In, block_states: InOut, block_windows: InOut, num_blocks: int, window_length: int) -> None:
    """Overwrite the recurrent states that are kept with the first `num_blocks` of `blocks`.

    Shapes: blocks [at least num_blocks]; block_states [blocks of the pool], block_windows [blocks of the pool *
    window_length] uint64.
    """
    chosen = blocks[:num_blocks]
    block_states[chosen] = POISON
    block_windows.reshape(-1, window_length)[chosen] = POISON
