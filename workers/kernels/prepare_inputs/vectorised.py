"""Turn the host's optimistic tables into what a step feeds to the model: one op for everything before the model."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, Integers, arange, below, integer, slots_at, tiled
from workers.kernels.prepare_inputs.arguments import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def prepare_inputs(a: PrepareInputs) -> None:
    """Correct the counts, lay the batch out, and overlay the host's token ids with what the step before sampled."""
    sampled_before = a.prev_position >= ZERO
    true = true_counts(a.prev_num_computed, a.prev_num_scheduled, a.prev_num_drafts, a.prev_valid)
    # Clipped: what has no row before, no state slot, or no row at all looks at the first, and is overwritten.
    a.num_computed[:] = a.computed_host
    np.copyto(a.num_computed, true.take(a.prev_position, mode="clip"), where=sampled_before)
    np.add(a.num_computed, a.num_scheduled, out=a.seq_lens)
    np.copyto(a.seq_lens, ZERO, where=a.num_scheduled <= ZERO)
    a.slot_accepted.take(a.state_slot, out=a.accepted, mode="clip")
    np.copyto(a.accepted, ZERO, where=a.state_slot < ZERO)

    is_padding = a.token_row < ZERO
    np.add((a.num_computed - a.query_start).take(a.token_row, mode="clip"), arange(len(a.token_row)), out=a.positions)
    np.copyto(a.positions, ZERO, where=is_padding)
    a.slots[:] = slot_mapping(a.positions, a.token_row, a.block_table, a.block_size, a.max_blocks)

    first = a.query_start + a.num_scheduled
    first -= a.num_drafts
    a.input_ids[:] = a.host_ids
    previous = a.prev_position[sampled_before]
    a.input_ids[(first - integer(1))[sampled_before]] = a.next_tokens.take(previous)
    if a.num_speculative_tokens:
        count, k = a.num_drafts.copy(), a.num_speculative_tokens
        np.copyto(count, ZERO, where=a.prev_position < ZERO)
        wanted = below(k).take(count, axis=0).ravel()
        proposed = a.draft_tokens.reshape(-1, k).take(a.prev_position, axis=0, mode="clip").ravel()
        a.scheduled_drafts.fill(NO_DRAFT)
        np.copyto(a.scheduled_drafts, proposed, where=wanted)
        place = first.repeat(k)
        place += tiled(k, len(first))
        a.input_ids[place[wanted]] = proposed[wanted]
    # What the host does not know, and drafts that nobody proposed or that are no tokens, are no ids for the model.
    np.maximum(a.input_ids, ZERO, out=a.input_ids)
    np.minimum(a.input_ids, integer(a.vocab_size - 1), out=a.input_ids)


def true_counts(num_computed: Any, num_scheduled: Any, num_drafts: Any, valid: Any) -> Integers:
    """Return the tokens computed after a step by its rows: what is not a draft or verified first, and what is valid."""
    counts: Integers = num_computed + num_scheduled
    counts -= num_drafts
    counts += valid
    counts -= integer(1)
    return counts


def slot_mapping(positions: Any, row: Any, block_table: Any, block_size: int, max_blocks: int) -> Integers:
    """Map (row, position) to block_table[row, position // block_size] * block_size + position % block_size.

    A position that the block table does not cover, or of no row, gets PAD_SLOT.
    """
    first = row * integer(max_blocks)
    slots = slots_at(positions, first, block_table, block_size, max_blocks, max_blocks * block_size)
    np.copyto(slots, integer(PAD_SLOT), where=row < ZERO)
    return slots
