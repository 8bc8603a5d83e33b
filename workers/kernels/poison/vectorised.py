"""Make memory that changes hands unreadable."""

from workers.kernels.poison.arguments import Poison, PoisonStates
from workers.kernels.sentinels import POISON


def poison(a: Poison) -> None:
    """Overwrite the first `num_blocks` of `blocks` in both caches."""
    chosen = a.blocks[: a.num_blocks]
    a.kv.reshape(-1, a.block_size)[chosen] = POISON
    a.drafter_kv.reshape(-1, a.block_size)[chosen] = POISON


def poison_states(a: PoisonStates) -> None:
    """Overwrite the recurrent states that are kept with the first `num_blocks` of `blocks`."""
    chosen = a.blocks[: a.num_blocks]
    a.block_states[chosen] = POISON
    a.block_windows.reshape(-1, a.window_length)[chosen] = POISON
