"""Overwrite memory that gets a new owner, so that any read of stale values is noticed."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.sentinels import POISON


@arguments
class Poison(Arguments):
    """Overwrite the first `num_blocks` of `blocks` in the KV caches of target and drafter."""

    blocks: Annotated[Memory, In("int64", "count", of=("fresh_blocks",))]
    kv: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * block_size")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * block_size")]
    num_blocks: int
    block_size: int


@arguments
class PoisonStates(Arguments):
    """Overwrite the recurrent states stored with the first `num_blocks` of `blocks`."""

    blocks: Annotated[Memory, In("int64", "count", of=("fresh_blocks",))]
    block_states: Annotated[Memory, InOut("uint64", "num_blocks_of_pool")]
    block_windows: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * window_length")]
    num_blocks: int
    window_length: int


def poison(a: Poison) -> None:
    """Overwrite the first `num_blocks` of `blocks` in the KV caches of target and drafter."""
    size = a.block_size
    for block in a.blocks[: a.num_blocks].tolist():
        a.kv[block * size : (block + 1) * size] = POISON
        a.drafter_kv[block * size : (block + 1) * size] = POISON


def poison_states(a: PoisonStates) -> None:
    """Overwrite the recurrent states and windows stored with the first `num_blocks` of `blocks`."""
    length = a.window_length
    for block in a.blocks[: a.num_blocks].tolist():
        a.block_states[block] = POISON
        a.block_windows[block * length : (block + 1) * length] = POISON
