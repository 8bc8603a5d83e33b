"""Cases of states stored with blocks: accepted counts, several blocks, missing blocks."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Batch, batches
from workers.kernels.sentinels import PAD_BLOCK
from workers.kernels.state_copy.definition import StateCopy


def of(batch: Batch, width: int, accepted: np.ndarray, max_blocks: int) -> StateCopy:
    """Return the arguments of the op for a batch; all states and windows differ."""
    table = batch.block_table.reshape(batch.num_rows, batch.max_blocks)[:, :max_blocks]
    # Padding is recognised by its slot only; its other values are arbitrary.
    table[batch.num_real :] = 0
    return StateCopy(
        num_computed=batch.num_computed,
        num_scheduled=batch.num_scheduled,
        num_drafts=batch.num_drafts,
        accepted=np.where(batch.is_real, accepted, 1 + batch.k),
        state_slot=batch.state_slot,
        block_table=table.ravel(),
        states=batch.words(batch.num_state_slots * (2 + batch.k)),
        conv=batch.words(batch.num_state_slots * (width + batch.k)),
        block_states=batch.words(batch.num_blocks),
        block_windows=batch.words(batch.num_blocks * (width - 1)),
        block_size=batch.block_size,
        max_blocks=max_blocks,
        num_speculative_tokens=batch.k,
        conv_width=width,
    )


def cases() -> Iterator[StateCopy]:
    """Yield every batch with some or all draft tokens accepted, then tables with missing blocks."""
    for index, batch in enumerate(batches()):
        counts = (np.arange(batch.num_rows) + index) % (2 + batch.num_drafts)
        yield of(batch, 2 + index % 3, counts, batch.max_blocks)
        yield of(batch, 2 + index % 3, 1 + batch.num_drafts, batch.max_blocks)
    first, second, *_ = batches()
    yield of(first, 2, first.num_drafts, 1)
    yield of(second, 3, 1 + second.num_drafts, 2)
    for each in (batch for batch in batches() if batch.block_size == 1 and batch.k):
        yield of(each, 3, 1 + each.num_drafts, 3)
        each.block_table[::2] = PAD_BLOCK
        yield of(each, 3, 1 + each.num_drafts, each.max_blocks)
