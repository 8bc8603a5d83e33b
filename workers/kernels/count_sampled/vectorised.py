"""Count what a step sampled, and find where its rows go on: one op for everything between sampling and drafting."""

from workers.kernels.count_sampled.arguments import CountSampled


def count_sampled(a: CountSampled) -> None:
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token."""
    sampled, width, is_token = a.sampled.tolist(), a.width, range(a.vocab_size).__contains__
    # Rows are few: numbers are faster than arrays of so few.
    rows = zip(
        a.state_slot.tolist(), a.discard.tolist(), a.query_start.tolist(), a.num_scheduled.tolist(),
        a.num_drafts.tolist(), strict=True,
    )  # fmt: skip
    for row, (slot, discard, start, num_scheduled, num_drafts) in enumerate(rows):
        columns = sampled[row * width : (row + 1) * width]
        count = sum(map(is_token, columns))
        first = start + num_scheduled - 1 - num_drafts if num_scheduled > 0 else 0
        a.accepted[row], a.token_index[row] = count, first + count - 1 if count else first
        if slot >= 0:
            a.slot_accepted[slot] = count
        if discard > 0:
            a.valid[row], a.next_tokens[row] = 0, a.backup[row]
        else:
            a.valid[row], a.next_tokens[row] = count, columns[count - 1] if count else a.input_ids[first]
