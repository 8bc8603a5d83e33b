"""Definition of the count of sampled tokens: a loop over the rows and columns of a step."""

from workers.kernels.count_sampled.arguments import CountSampled
from workers.kernels.sentinels import PAD_STATE_SLOT


def count_sampled(a: CountSampled) -> None:
    """Count each row's valid tokens, keep the count with its state slot, and find its next token."""
    for row in range(len(a.state_slot)):
        count = 0
        for column in range(a.width):
            if 0 <= int(a.sampled[row * a.width + column]) < a.vocab_size:
                count += 1
        is_discarded = int(a.discard[row]) > 0
        a.accepted[row] = count
        a.valid[row] = 0 if is_discarded else count
        slot = int(a.state_slot[row])
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
            a.next_tokens[row] = a.sampled[row * a.width + last_column]
        else:
            a.next_tokens[row] = a.input_ids[verified_first]
