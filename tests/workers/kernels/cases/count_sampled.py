"""Cases of counting: every number of valid tokens, discarded rows, various invalid ids."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import INT_POISON, batches, integers
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.sentinels import NO_TOKEN


def cases() -> Iterator[CountSampled]:
    """Yield every batch; after the valid tokens: NO_TOKEN, an invalid id, or poison."""
    for index, batch in enumerate(batches()):
        rng, width = batch.rng, 1 + batch.k
        is_discarded = batch.is_real & (batch.num_drafts == 0) & (batch.num_scheduled > 1)
        counts = np.where(batch.is_real, (np.arange(batch.num_rows) + index) % (batch.num_drafts + 2), 0)
        counts[is_discarded] = 1
        tokens = rng.integers(0, batch.vocab_size, (batch.num_rows, width))
        tokens[:, 0] = rng.choice([0, batch.vocab_size - 1], batch.num_rows)
        none = rng.choice([NO_TOKEN, batch.vocab_size, INT_POISON, 1 << 62], tokens.shape)
        backup = np.where(is_discarded, rng.integers(0, batch.vocab_size, batch.num_rows), NO_TOKEN)
        yield CountSampled(
            sampled=np.where(np.arange(width) < counts[:, None], tokens, none).ravel(),
            discard=is_discarded.astype(np.int64),
            backup=backup,
            input_ids=batch.ids(),
            query_start=batch.query_start,
            num_scheduled=batch.num_scheduled,
            num_drafts=batch.num_drafts,
            state_slot=batch.state_slot,
            slot_accepted=integers(batch.num_state_slots),
            accepted=integers(batch.num_rows),
            valid=integers(batch.num_rows),
            next_tokens=integers(batch.num_rows),
            token_index=integers(batch.num_rows),
            width=width,
            vocab_size=batch.vocab_size,
        )
