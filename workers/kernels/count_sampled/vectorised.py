"""Count what a step sampled, and find where its rows go on: one op for everything between sampling and drafting."""

from workers.kernels.count_sampled.arguments import CountSampled


def count_sampled(a: CountSampled) -> None:
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token."""
    sampled, width = a.sampled.tolist(), a.width
    accepted, valid, token_index, next_tokens = [], [], [], []
    # Rows are few: numbers are faster than arrays of so few.
    rows = zip(
        a.state_slot.tolist(), a.discard.tolist(), a.query_start.tolist(), a.num_scheduled.tolist(),
        a.num_drafts.tolist(), strict=True,
    )  # fmt: skip
    for row, (slot, discard, start, num_scheduled, num_drafts) in enumerate(rows):
        columns = sampled[row * width : (row + 1) * width]
        count, first = sum([0 <= token < a.vocab_size for token in columns]), 0
        if num_scheduled > 0:
            first = start + num_scheduled - 1 - num_drafts
        accepted.append(count)
        valid.append(0 if discard > 0 else count)
        token_index.append(first + max(count - 1, 0))
        if slot >= 0:
            a.slot_accepted[slot] = count
        if discard > 0:
            next_tokens.append(a.backup[row])
        else:
            next_tokens.append(columns[count - 1] if count else a.input_ids[first])
    a.accepted[:], a.valid[:], a.token_index[:], a.next_tokens[:] = accepted, valid, token_index, next_tokens
