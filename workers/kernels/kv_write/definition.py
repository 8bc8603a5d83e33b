"""Compute the hidden state of each token, and write its KV-cache entry."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.arithmetic.definition import embed, kv_entry
from workers.kernels.sentinels import PAD_SLOT


@arguments
class KvWrite(Arguments):
    """Write the hidden state of each token, and its KV-cache entry if it has a slot."""

    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T")]
    hidden: Annotated[Memory, Out("uint64", "T")]
    kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]
    layer: int


def kv_write(a: KvWrite) -> None:
    """Write the hidden state of each token, and its KV-cache entry if it has a slot."""
    for token in range(len(a.input_ids)):
        hidden = embed(int(a.input_ids[token]))
        a.hidden[token] = hidden
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.kv[slot] = kv_entry(hidden, int(a.positions[token]), a.layer)
