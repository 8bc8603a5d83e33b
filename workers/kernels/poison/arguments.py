"""Overwrite memory that gets a new owner, so that stale values are noticed."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class Poison(Arguments):
    """Overwrite the first `num_blocks` of `blocks` in both caches."""

    blocks: Annotated[Memory, In("int64", "count", of=("fresh_blocks",))]
    kv: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * block_size")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * block_size")]
    num_blocks: int
    block_size: int


@arguments
class PoisonStates(Arguments):
    """Overwrite the recurrent states that are kept with the first `num_blocks` of `blocks`."""

    blocks: Annotated[Memory, In("int64", "count", of=("fresh_blocks",))]
    block_states: Annotated[Memory, InOut("uint64", "num_blocks_of_pool")]
    block_windows: Annotated[Memory, InOut("uint64", "num_blocks_of_pool * window_length")]
    num_blocks: int
    window_length: int
