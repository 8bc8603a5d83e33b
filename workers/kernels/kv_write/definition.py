"""Definition of the write of keys and values: a loop over tokens."""

from workers.kernels.arithmetic.definition import embed, kv_word
from workers.kernels.kv_write.arguments import KvWrite
from workers.kernels.sentinels import PAD_SLOT


def kv_write(a: KvWrite) -> None:
    """Write the hidden word of every token, and its key and value where it has a slot."""
    for token in range(len(a.input_ids)):
        hidden = embed(int(a.input_ids[token]))
        a.hidden[token] = hidden
        slot = int(a.slots[token])
        if slot != PAD_SLOT:
            a.kv[slot] = kv_word(hidden, int(a.positions[token]), a.layer)
