"""Embed the tokens and store their keys and values."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


@arguments
class KvWrite(Arguments):
    """Write kv[slot] of every token that has a slot, and the hidden word of every token."""

    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T")]
    hidden: Annotated[Memory, Out("uint64", "T")]
    kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    layer: int
