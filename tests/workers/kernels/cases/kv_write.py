"""Cases of KV-cache writes: layers of target and drafter, smallest and largest ids."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches
from workers.kernels.arithmetic.definition import DRAFTER_LAYER
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.sentinels import POISON


def cases() -> Iterator[KvWrite]:
    """Yield every batch, each for another layer; the last has the largest ids and positions."""
    for batch, layer in zip(batches(), (0, 1, 7, DRAFTER_LAYER, 0, 3), strict=True):
        ids, positions = batch.ids(), batch.positions
        if batch.vocab_size > 100:
            ids[0], positions[0] = (1 << 16) - 1, 1 << 16
        yield KvWrite(
            input_ids=ids,
            positions=positions,
            slots=batch.slots,
            hidden=np.full(batch.num_tokens, POISON, dtype=np.uint64),
            kv=batch.cache(),
            layer=layer,
        )
