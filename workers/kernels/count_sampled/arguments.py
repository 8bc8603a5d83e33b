"""Count the sampled tokens of rows and find their next tokens: one op for everything between sampling and drafting."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments


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
