"""Definition of the count of sampled tokens: a loop over the rows and columns of a step."""

from workers.kernels.count_sampled.arguments import CountSampled
from workers.kernels.sentinels import PAD_STATE_SLOT


def count_sampled(a: CountSampled) -> None:
    """Count each row's valid tokens, keep the count with its state slot, and find its next token."""
    for row, slot in enumerate(a.state_slot.tolist()):
        columns = a.sampled[row * a.width : (row + 1) * a.width].tolist()
        count = sum([0 <= token < a.vocab_size for token in columns])
        is_discarded = a.discard[row] > 0
        a.accepted[row] = count
        a.valid[row] = 0 if is_discarded else count
        if slot != PAD_STATE_SLOT:
            a.slot_accepted[slot] = count

        num_scheduled = int(a.num_scheduled[row])
        if num_scheduled > 0:
            verified_first = int(a.query_start[row]) + num_scheduled - 1 - int(a.num_drafts[row])
        else:
            verified_first = 0
        last_column = max(count - 1, 0)
        a.token_index[row] = verified_first + last_column
        if is_discarded:
            a.next_tokens[row] = a.backup[row]
        elif count > 0:
            a.next_tokens[row] = columns[last_column]
        else:
            a.next_tokens[row] = a.input_ids[verified_first]
