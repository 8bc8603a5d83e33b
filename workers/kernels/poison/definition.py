"""Definition of poison: a loop over the words of memory that gets a new owner."""

from workers.kernels.poison.arguments import Poison, PoisonStates
from workers.kernels.sentinels import POISON


def poison(a: Poison) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches."""
    for index in range(a.num_blocks):
        block = int(a.blocks[index])
        for offset in range(a.block_size):
            a.kv[block * a.block_size + offset] = POISON
            a.drafter_kv[block * a.block_size + offset] = POISON


def poison_states(a: PoisonStates) -> None:
    """Overwrite the recurrent states and windows that are kept with the first `num_blocks` of `blocks`."""
    for index in range(a.num_blocks):
        block = int(a.blocks[index])
        a.block_states[block] = POISON
        for offset in range(a.window_length):
            a.block_windows[block * a.window_length + offset] = POISON
