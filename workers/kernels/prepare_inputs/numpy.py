"""Compute the model inputs of a step from the host's optimistic tables, in one op.

A step has few rows and few tokens: lists of numbers are faster than such small arrays, and need no index computation.
"""

from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def prepare_inputs(a: PrepareInputs) -> None:
    k, block_size, max_blocks = a.num_speculative_tokens, a.block_size, a.max_blocks
    counts, ids, draft_tokens = a.computed_host.tolist(), a.host_ids.tolist(), a.draft_tokens.tolist()
    table, slot_accepted, length_max = a.block_table.tolist(), a.slot_accepted.tolist(), max_blocks * block_size
    lengths, accepted, drafts, num_tokens = [], [], [NO_DRAFT] * len(a.scheduled_drafts), len(ids)
    positions, slots = [0] * num_tokens, [PAD_SLOT] * num_tokens
    before = list(
        zip(
            a.prev_num_computed.tolist(), a.prev_num_scheduled.tolist(), a.prev_num_drafts.tolist(),
            a.prev_valid.tolist(), a.next_tokens.tolist(), strict=True,
        )
    )  # fmt: skip
    rows = zip(
        a.prev_position.tolist(), a.query_start.tolist(), a.num_scheduled.tolist(), a.num_drafts.tolist(),
        a.state_slot.tolist(), strict=True,
    )  # fmt: skip
    for row, (previous, start, num_scheduled, num_drafts, slot) in enumerate(rows):
        end, first = start + num_scheduled, row * max_blocks
        if previous >= 0:
            num_computed, num_certain, num_uncertain, valid, token = before[previous]
            # Tokens before the first verified one are computed for certain.
            counts[row] = num_computed + num_certain - 1 - num_uncertain + valid
            proposed = draft_tokens[previous * k : previous * k + num_drafts]
            drafts[row * k : row * k + num_drafts] = proposed
            ids[end - num_drafts - 1] = token
            ids[end - num_drafts : end] = proposed
        count = counts[row]
        lengths.append(count + num_scheduled if num_scheduled > 0 else 0)
        accepted.append(slot_accepted[slot] if slot >= 0 else 0)
        at = range(count, count + num_scheduled)
        positions[start:end] = at
        slots[start:end] = [
            block * block_size + position % block_size
            if position < length_max and (block := table[first + position // block_size]) >= 0
            else PAD_SLOT
            for position in at
        ]
    a.num_computed[:], a.seq_lens[:], a.accepted[:], a.scheduled_drafts[:] = counts, lengths, accepted, drafts
    # If another step has overwritten the layout, its tokens may follow those of this step.
    a.positions[:], a.slots[:] = positions[:num_tokens], slots[:num_tokens]
    last = a.vocab_size - 1
    # Clamped: tokens unknown to the host, and draft tokens that were not proposed or are outside the vocabulary.
    a.input_ids[:] = [0 if token < 0 else token if token < last else last for token in ids[:num_tokens]]
