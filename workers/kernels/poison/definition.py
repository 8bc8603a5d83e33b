"""Definition of poison: a loop over the words of memory that gets a new owner."""

from workers.kernels.poison.arguments import Poison, PoisonStates
from workers.kernels.sentinels import POISON


def poison(a: Poison) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches."""
    size = a.block_size
    for block in a.blocks[: a.num_blocks].tolist():
        a.kv[block * size : (block + 1) * size] = POISON
        a.drafter_kv[block * size : (block + 1) * size] = POISON


def poison_states(a: PoisonStates) -> None:
    """Overwrite the recurrent states and windows that are kept with the first `num_blocks` of `blocks`."""
    length = a.window_length
    for block in a.blocks[: a.num_blocks].tolist():
        a.block_states[block] = POISON
        a.block_windows[block * length : (block + 1) * length] = POISON
