"""Turn the host's optimistic tables into what a step feeds to the model: one op for everything before the model.

Which places are read and written follows from the layout of a step, which many steps have: it is found once for each.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, Integers, arange, integer, shared, slots_at
from workers.kernels.prepare_inputs.arguments import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def prepare_inputs(a: PrepareInputs) -> None:
    """Correct the counts, lay the batch out, and overlay the host's token ids with what the step before sampled."""
    layout = (a.prev_position.tobytes(), a.query_start.tobytes(), a.num_scheduled.tobytes(), a.num_drafts.tobytes())
    plan = _plan(*layout, a.token_row.tobytes(), a.num_speculative_tokens)
    true = true_counts(a.prev_num_computed, a.prev_num_scheduled, a.prev_num_drafts, a.prev_valid)
    a.num_computed[:] = a.computed_host
    a.num_computed[plan.going_on] = true[plan.previous]
    np.add(a.num_computed, a.num_scheduled, a.seq_lens)
    a.seq_lens[plan.idle] = ZERO
    # Clipped: what has no state slot, or no row at all, looks at the first, and is overwritten.
    a.slot_accepted.take(a.state_slot, out=a.accepted, mode="clip")
    a.accepted[a.state_slot < ZERO] = ZERO

    np.add(a.num_computed.take(a.token_row, mode="clip"), plan.ahead, a.positions)
    a.positions[plan.padding] = ZERO
    slot_mapping(a.positions, a.token_row, a.block_table, a.block_size, a.max_blocks, a.slots)

    ids = a.host_ids.copy()
    ids[plan.sampled] = a.next_tokens[plan.previous]
    if a.num_speculative_tokens:
        drafts = a.draft_tokens[plan.drafts]
        a.scheduled_drafts.fill(NO_DRAFT)
        a.scheduled_drafts[plan.scheduled] = drafts
        ids[plan.drafted] = drafts
    # What the host does not know, and drafts that nobody proposed or that are no tokens, are no ids for the model.
    arange(a.vocab_size).take(ids, out=a.input_ids, mode="clip")


class _Plan(NamedTuple):
    """Places of a step: rows that go on from the step before, and where in it; rows that do nothing; padding tokens.

    `ahead` is how far each token is from its row's first. Of rows that go on: the tokens that were `sampled` in the
    step before, and of the `drafts` that it proposed which are `scheduled`, and which tokens they are, `drafted`.
    """

    going_on: Integers
    previous: Integers
    idle: Integers
    padding: Integers
    ahead: Integers
    sampled: Integers
    drafts: Integers
    scheduled: Integers
    drafted: Integers


@lru_cache(maxsize=4096)
def _plan(
    prev_position: bytes, query_start: bytes, num_scheduled: bytes, num_drafts: bytes, token_row: bytes, k: int
) -> _Plan:
    """Return the places of a step from its layout."""
    before, start, count, drafts, row = (
        np.frombuffer(field, dtype=np.int64)
        for field in (prev_position, query_start, num_scheduled, num_drafts, token_row)
    )
    going_on = np.flatnonzero(before >= 0)
    previous, first = before[going_on], (start + count - drafts - 1)[going_on]
    # Row by row, which of its K drafts.
    of, column = np.nonzero(arange(k) < drafts[going_on][:, None])
    return _Plan(
        going_on=shared(going_on),
        previous=shared(previous),
        idle=shared(np.flatnonzero(count <= 0)),
        padding=shared(np.flatnonzero(row < 0)),
        ahead=shared(arange(len(row)) - start.take(row, mode="clip")),
        sampled=shared(first),
        drafts=shared(previous[of] * k + column),
        scheduled=shared(going_on[of] * k + column),
        drafted=shared(first[of] + 1 + column),
    )


def true_counts(num_computed: Any, num_scheduled: Any, num_drafts: Any, valid: Any) -> Integers:
    """Return the tokens computed after a step by its rows: what is not a draft or verified first, and what is valid."""
    counts: Integers = num_computed + num_scheduled
    counts -= num_drafts
    counts += valid
    counts -= integer(1)
    return counts


def slot_mapping(
    positions: Any, row: Any, block_table: Any, block_size: int, max_blocks: int, out: Any = None
) -> Integers:
    """Map (row, position) to block_table[row, position // block_size] * block_size + position % block_size.

    A position that the block table does not cover, or of no row, gets PAD_SLOT. In `out` if it is given.
    """
    first = row * integer(max_blocks)
    slots = slots_at(positions, first, block_table, block_size, max_blocks, max_blocks * block_size, out)
    slots[row < ZERO] = integer(PAD_SLOT)
    return slots
