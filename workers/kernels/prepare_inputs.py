"""Turn the host's optimistic tables into what a step feeds to the model: one op for everything before the model."""

from typing import Any

import numpy as np

from workers.kernels.arithmetic import ZERO, Integers, arange, below, integer, tiled
from workers.kernels.signature import NO_DRAFT, PAD_SLOT, In, Out


def prepare_inputs(
    prev_position: In,
    prev_num_scheduled: In,
    prev_num_drafts: In,
    prev_num_computed: In,
    prev_valid: In,
    next_tokens: In,
    draft_tokens: In,
    slot_accepted: In,
    computed_host: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    state_slot: In,
    host_ids: In,
    token_row: In,
    block_table: In,
    num_computed: Out,
    seq_lens: Out,
    accepted: Out,
    positions: Out,
    slots: Out,
    input_ids: Out,
    scheduled_drafts: Out,
    block_size: int,
    max_blocks: int,
    num_speculative_tokens: int,
) -> None:
    """Correct the counts, lay the batch out, and overlay the host's token ids with what the step before sampled.

    Shapes: prev_num_scheduled, prev_num_drafts, prev_num_computed, prev_valid, next_tokens [rows_max] and draft_tokens
    [rows_max * K], by the row of the step before; slot_accepted [num_state_slots]; prev_position, computed_host,
    query_start, num_scheduled, num_drafts, state_slot, num_computed, seq_lens, accepted [num_rows]; host_ids,
    token_row, positions, slots, input_ids [num_tokens]; block_table [num_rows * max_blocks]; scheduled_drafts
    [num_rows * K].
    Counts are read from one buffer and written to another, so rows may move freely.
    `accepted` says which speculative position of a row's state slot is the committed one. Padding rows have length and
    accepted count 0, padding tokens position 0 and PAD_SLOT.
    Source: vLLM PR #32951.
    """
    sampled_before = prev_position >= ZERO
    true = true_counts(prev_num_computed, prev_num_scheduled, prev_num_drafts, prev_valid)
    # Clipped: what has no row before, no state slot, or no row at all looks at the first, and is overwritten.
    num_computed[:] = computed_host
    np.copyto(num_computed, true.take(prev_position, mode="clip"), where=sampled_before)
    np.add(num_computed, num_scheduled, out=seq_lens)
    np.copyto(seq_lens, ZERO, where=num_scheduled <= ZERO)
    slot_accepted.take(state_slot, out=accepted, mode="clip")
    np.copyto(accepted, ZERO, where=state_slot < ZERO)

    is_padding = token_row < ZERO
    np.add((num_computed - query_start).take(token_row, mode="clip"), arange(len(token_row)), out=positions)
    np.copyto(positions, ZERO, where=is_padding)
    slots[:] = slot_mapping(positions, token_row, block_table, block_size, max_blocks)

    first = query_start + num_scheduled
    first -= num_drafts
    input_ids[:] = host_ids
    previous = prev_position[sampled_before]
    input_ids[(first - integer(1))[sampled_before]] = next_tokens.take(previous)
    if num_speculative_tokens:
        count, k = num_drafts.copy(), num_speculative_tokens
        np.copyto(count, ZERO, where=prev_position < ZERO)
        wanted = below(k).take(count, axis=0).ravel()
        proposed = draft_tokens.reshape(-1, k).take(prev_position, axis=0, mode="clip").ravel()
        scheduled_drafts.fill(NO_DRAFT)
        np.copyto(scheduled_drafts, proposed, where=wanted)
        place = first.repeat(k)
        place += tiled(k, len(first))
        input_ids[place[wanted]] = proposed[wanted]
    # What the host does not know, and drafts that nobody proposed, are no ids for the model.
    np.maximum(input_ids, ZERO, out=input_ids)


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
    size, count = integer(block_size), integer(max_blocks)
    index = positions // size
    entry = row * count
    entry += np.minimum(index, integer(max_blocks - 1))
    slots: Integers = block_table.take(entry, mode="clip")
    is_nowhere = slots < ZERO
    is_nowhere |= index >= count
    is_nowhere |= row < ZERO
    slots -= index
    slots *= size
    slots += positions
    np.copyto(slots, integer(PAD_SLOT), where=is_nowhere)
    return slots
