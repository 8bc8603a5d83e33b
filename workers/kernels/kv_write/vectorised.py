"""Embed the tokens and store their keys and values."""

from workers.kernels.arithmetic.vectorised import ZERO, embed, kv_words
from workers.kernels.kv_write.arguments import KvWrite


def kv_write(a: KvWrite) -> None:
    """Write kv[slot] of every token that has a slot, and the hidden word of every token."""
    embed(a.input_ids, a.hidden)
    stored = kv_words(a.hidden, a.positions, a.layer)
    real = a.slots >= ZERO
    a.kv[a.slots[real]] = stored[real]
