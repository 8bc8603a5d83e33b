"""Embed the tokens and store their keys and values."""

from workers.kernels.arithmetic import ZERO, embed, kv_words
from workers.kernels.signature import In, InOut, Out


def kv_write(input_ids: In, positions: In, slots: In, hidden: Out, kv: InOut, layer: int) -> None:
    """Write kv[slot] of every token that has a slot, and the hidden word of every token.

    Shapes: input_ids, positions, slots, hidden [num_tokens]; kv [num_blocks * block_size] uint64.
    """
    embed(input_ids, hidden)
    stored = kv_words(hidden, positions, layer)
    real = slots >= ZERO
    kv[slots[real]] = stored[real]
