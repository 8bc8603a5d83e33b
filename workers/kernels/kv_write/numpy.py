"""Compute the hidden state of each token, and write its KV-cache entry."""

from workers.kernels.arithmetic.numpy import embed, kv_entries, store
from workers.kernels.kv_write.definition import KvWrite


def kv_write(a: KvWrite) -> None:
    embed(a.input_ids, a.hidden)
    store(a.kv, a.slots, kv_entries(a.hidden, a.positions, a.layer))
