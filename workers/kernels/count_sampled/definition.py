"""Count the sampled tokens of rows and find their next tokens: one op for everything between sampling and drafting."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.sentinels import PAD_STATE_SLOT


@arguments
class CountSampled(Arguments):
    """Count the valid columns of each row, keep the count with its recurrent state, and find its next token.

    Valid tokens are a contiguous prefix, so their number is the accepted count. A discarded row (a prefill chunk
    that is not the last, without drafts) counts the one column it sampled, which is neutral, but has no valid
    token: it goes on from its backup token, the last token the host knows. A row that sampled nothing valid goes on
    from the token it was to verify first, once more. `token_index` is the flat index of each row's last kept token;
    a row that keeps none of its verified tokens points at the first of them, and its drafts are not used. Padding
    rows come last, store nothing and point at index 0.
    Source: vLLM PRs #38372, #38556 and #41043.
    """

    sampled: Annotated[Memory, In("int64", "B * width")]
    discard: Annotated[Memory, In("int64", "B")]
    backup: Annotated[Memory, In("int64", "B")]
    input_ids: Annotated[Memory, In("int64", "T")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    slot_accepted: Annotated[Memory, InOut("int64", "num_state_slots")]
    accepted: Annotated[Memory, Out("int64", "B")]
    valid: Annotated[Memory, Out("int64", "B")]
    next_tokens: Annotated[Memory, Out("int64", "B")]
    token_index: Annotated[Memory, Out("int64", "B")]
    width: int
    vocab_size: int


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
