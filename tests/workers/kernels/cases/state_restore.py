"""Cases of restored states: new and continuing rows, and padding that names a block."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import batches, integers
from workers.kernels.sentinels import PAD_BLOCK
from workers.kernels.state_restore.definition import StateRestore


def cases() -> Iterator[StateRestore]:
    """Yield every batch; every second row restores the state of a block, as after a cache hit."""
    for index, batch in enumerate(batches()):
        width, rows = 2 + index % 3, np.arange(batch.num_rows)
        taken = np.where((rows + index) % 2 == 0, batch.rng.integers(0, batch.num_blocks, batch.num_rows), PAD_BLOCK)
        taken[batch.num_real :] = 0
        yield StateRestore(
            taken_over=taken,
            state_slot=batch.state_slot,
            block_states=batch.words(batch.num_blocks),
            block_windows=batch.words(batch.num_blocks * (width - 1)),
            slot_accepted=integers(batch.num_state_slots),
            states=batch.words(batch.num_state_slots * (2 + batch.k)),
            conv=batch.words(batch.num_state_slots * (width + batch.k)),
            num_speculative_tokens=batch.k,
            conv_width=width,
        )
