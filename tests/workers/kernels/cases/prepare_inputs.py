"""Cases of a step's inputs: rows that moved, new rows, and positions without a block."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import Batch, Row, batch, batches, integers
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, NO_PREVIOUS_ROW, UNKNOWN_TOKEN


def of(batch: Batch, max_blocks: int) -> PrepareInputs:
    """Return a step in which two of three rows continue, at other row indexes."""
    rng, k, rows_max = batch.rng, batch.k, batch.num_rows + 2
    is_sampled = (batch.num_computed > 0) & (np.arange(batch.num_rows) % 3 < 2)
    # The first sampled row was row 0.
    places = np.roll(np.arange(rows_max), int(np.argmax(is_sampled)))[: batch.num_rows]
    previous = np.where(is_sampled, places, NO_PREVIOUS_ROW)
    fields = {name: integers(rows_max) for name in ("scheduled", "drafts", "computed", "valid", "next")}
    draft_tokens = rng.integers(NO_DRAFT - 1, batch.vocab_size + 2, rows_max * k)
    for row in np.flatnonzero(is_sampled):
        d, extra = int(rng.integers(k + 1)), int(rng.integers(3))
        valid = int(rng.integers(d + 2))
        before = int(batch.num_computed[row]) - extra - valid
        sampled = int(rng.integers(batch.vocab_size))
        for values, value in zip(fields.values(), (extra + 1 + d, d, before, valid, sampled), strict=True):
            values[previous[row]] = value
    slot_accepted = integers(batch.num_state_slots)
    slot_accepted[: batch.num_real] = rng.integers(0, k + 2, batch.num_real)
    is_unknown = (batch.token_row >= 0) & (rng.integers(3, size=batch.num_tokens) == 0)
    table = batch.block_table.reshape(batch.num_rows, batch.max_blocks)[:, :max_blocks]
    return PrepareInputs(
        prev_position=previous,
        prev_num_scheduled=fields["scheduled"],
        prev_num_drafts=fields["drafts"],
        prev_num_computed=fields["computed"],
        prev_valid=fields["valid"],
        next_tokens=fields["next"],
        draft_tokens=draft_tokens,
        slot_accepted=slot_accepted,
        computed_host=np.where(is_sampled | ~batch.is_real, integers(batch.num_rows), batch.num_computed),
        query_start=batch.query_start,
        num_scheduled=batch.num_scheduled,
        num_drafts=batch.num_drafts,
        state_slot=batch.state_slot,
        host_ids=np.where(is_unknown, UNKNOWN_TOKEN, batch.ids()),
        token_row=batch.token_row,
        block_table=table.ravel(),
        num_computed=integers(batch.num_rows),
        seq_lens=integers(batch.num_rows),
        accepted=integers(batch.num_rows),
        positions=integers(batch.num_tokens),
        slots=integers(batch.num_tokens),
        input_ids=integers(batch.num_tokens),
        scheduled_drafts=integers(batch.num_rows * k),
        block_size=batch.block_size,
        max_blocks=max_blocks,
        num_speculative_tokens=k,
        vocab_size=batch.vocab_size,
    )


def cases() -> Iterator[PrepareInputs]:
    """Yield every batch, a long prefill chunk, and block tables that end before the tokens."""
    for each in batches():
        yield of(each, each.max_blocks)
    yield of(long := batch([Row(130, 0, 3)], k=1, block_size=7, vocab_size=33, seed=7), long.max_blocks)
    short = batch([Row(4, 2, 5), Row(7, 0, 0), Row(3, 2, 5)], k=2, block_size=3, vocab_size=33, padding=1, seed=8)
    short.block_table[: short.max_blocks][2:] = -1
    yield of(short, 2)
    yield of(short, short.max_blocks)
