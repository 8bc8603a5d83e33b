"""Make memory that changes hands unreadable."""

from workers.kernels.arithmetic.vectorised import Words
from workers.kernels.poison.arguments import Poison, PoisonStates
from workers.kernels.sentinels import POISON


def poison(a: Poison) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches."""
    for block in a.blocks[: a.num_blocks].tolist():
        _overwrite(a.kv, block, a.block_size)
        _overwrite(a.drafter_kv, block, a.block_size)


def poison_states(a: PoisonStates) -> None:
    """Overwrite the recurrent states that are kept with the first `num_blocks` of `blocks`."""
    for block in a.blocks[: a.num_blocks].tolist():
        a.block_states[block] = POISON
        _overwrite(a.block_windows, block, a.window_length)


def _overwrite(words: Words, block: int, length: int) -> None:
    """Overwrite a block of words: blocks are few, and a slice is faster than an array of them."""
    words[block * length : (block + 1) * length] = POISON
