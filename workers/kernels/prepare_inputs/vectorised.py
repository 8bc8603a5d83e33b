"""Turn the host's optimistic tables into what a step feeds to the model: one op for everything before the model."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, Integers, arange, below, integer, runs, slots_at
from workers.kernels.prepare_inputs.arguments import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def prepare_inputs(a: PrepareInputs) -> None:
    """Correct the counts, lay the batch out, and overlay the host's token ids with what the step before sampled."""
    (going_on,) = (a.prev_position >= ZERO).nonzero()
    previous = a.prev_position[going_on]
    true = true_counts(a.prev_num_computed, a.prev_num_scheduled, a.prev_num_drafts, a.prev_valid)
    a.num_computed[:] = a.computed_host
    a.num_computed[going_on] = true[previous]
    np.add(a.num_computed, a.num_scheduled, a.seq_lens)
    a.seq_lens[a.num_scheduled <= ZERO] = ZERO
    # Clipped: what has no state slot, or no row at all, looks at the first, and is overwritten.
    a.slot_accepted.take(a.state_slot, out=a.accepted, mode="clip")
    a.accepted[a.state_slot < ZERO] = ZERO

    np.add((a.num_computed - a.query_start)[a.token_row], arange(len(a.token_row)), a.positions)
    (padding,) = (a.token_row < ZERO).nonzero()
    a.positions[padding] = ZERO
    slot_mapping(a.positions, a.token_row, a.block_table, a.block_size, a.max_blocks, a.slots)

    ids = a.host_ids.copy()
    first = a.query_start + a.num_scheduled
    first -= a.num_drafts
    first -= integer(1)
    ids[first[going_on]] = a.next_tokens[previous]
    if a.num_speculative_tokens:
        _overlay_drafts(a, ids, first, going_on)
    # What the host does not know, and drafts that nobody proposed or that are no tokens, are no ids for the model.
    arange(a.vocab_size).take(ids, out=a.input_ids, mode="clip")


def _overlay_drafts(a: PrepareInputs, ids: Integers, first: Integers, going_on: Integers) -> None:
    """Overlay ids with the drafts that rows verify behind their `first` tokens, and write down which those are."""
    k, count = a.num_speculative_tokens, np.zeros(len(first), dtype=np.int64)
    count[going_on] = a.num_drafts[going_on]
    (wanted,) = below(k).take(count, axis=0).ravel().nonzero()
    drafts = a.draft_tokens.reshape(-1, k).take(a.prev_position, axis=0, mode="clip").ravel()[wanted]
    a.scheduled_drafts.fill(NO_DRAFT)
    a.scheduled_drafts[wanted] = drafts
    ids[runs(1 + len(ids), k)[1:].take(first, axis=0, mode="clip").ravel()[wanted]] = drafts


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
