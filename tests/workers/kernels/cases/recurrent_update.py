"""Cases of the recurrent layer: new rows, every accepted count, 2 to 4 inputs, padding only."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Batch, batches, integers
from workers.kernels.recurrent_update.definition import RecurrentUpdate
from workers.kernels.sentinels import PAD_STATE_SLOT


def of(batch: Batch, width: int, more_queries: int = 0) -> RecurrentUpdate:
    """Return the op's arguments for a batch; a new row's accepted count is poison."""
    counts = (np.arange(batch.num_rows) + width) % (2 + batch.k)
    return RecurrentUpdate(
        hidden=batch.words(batch.num_tokens),
        num_computed=batch.num_computed,
        query_start=batch.query_start,
        num_scheduled=batch.num_scheduled,
        num_drafts=batch.num_drafts,
        state_slot=batch.state_slot,
        accepted=np.where(batch.num_computed > 0, counts, integers(batch.num_rows)),
        states=batch.words(batch.num_state_slots * (2 + batch.k)),
        conv=batch.words(batch.num_state_slots * (width + batch.k)),
        num_queries_max=int(batch.num_scheduled.max()) + more_queries,
        num_speculative_tokens=batch.k,
        conv_width=width,
    )


def cases() -> Iterator[RecurrentUpdate]:
    """Yield arguments of the op for every batch, and for one with padding rows only."""
    for index, batch in enumerate(batches()):
        yield of(batch, 2 + index % 3, index % 2)
    padding = next(batches())
    padding.state_slot.fill(PAD_STATE_SLOT)
    yield of(padding, 3)


def undefined(a: RecurrentUpdate) -> dict[str, list[int]]:
    """Return a mask of states that the op need not define: after a row's 2 + d states."""
    num_states, num_inputs = 2 + a.num_speculative_tokens, a.conv_width + a.num_speculative_tokens
    places: dict[str, list[int]] = {"states": [], "conv": []}
    for slot, drafts in zip(a.state_slot.tolist(), a.num_drafts.tolist(), strict=True):
        if slot != PAD_STATE_SLOT:
            places["states"] += range(slot * num_states + 2 + drafts, (slot + 1) * num_states)
            places["conv"] += range(slot * num_inputs + a.conv_width + drafts, (slot + 1) * num_inputs)
    return places
