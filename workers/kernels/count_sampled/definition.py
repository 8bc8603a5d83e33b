"""Count each row's sampled tokens and find its next token, in one op before drafting."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.sentinels import PAD_STATE_SLOT


@arguments
class CountSampled(Arguments):
    """Count each row's valid sampled tokens, store the count in its slot, find its next token.

    Valid tokens are a contiguous prefix, so their number is the accepted count (accepted draft tokens plus the bonus
    token).
    - A discarded row (a prefill chunk that is not the last, without drafts) has accepted count 1, which is neutral, but
      no valid token. Its next token is its backup token, the last token that the host knows.
    - A row without any valid token has as its next token the first token that it had to verify, once more.
      `token_index` is the flat index of each row's last kept token; for a row that keeps none, the first token to
      verify, and its drafts are not used. Padding rows come last, store nothing and have token_index 0.
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
    """Count each row's valid sampled tokens, store the count in its slot, find its next token."""
    rows = zip(
        a.sampled.reshape(-1, a.width).tolist(), a.discard.tolist(), a.state_slot.tolist(), a.query_start.tolist(),
        a.num_scheduled.tolist(), a.num_drafts.tolist(), strict=True,
    )  # fmt: skip
    for row, (columns, discard, slot, start, num_scheduled, num_drafts) in enumerate(rows):
        count = sum([0 <= token < a.vocab_size for token in columns])
        a.accepted[row] = count
        a.valid[row] = 0 if discard else count
        if slot != PAD_STATE_SLOT:
            a.slot_accepted[slot] = count
        verified_first = start + num_scheduled - 1 - num_drafts if num_scheduled > 0 else 0
        last_column = max(count - 1, 0)
        a.token_index[row] = verified_first + last_column
        if discard:
            a.next_tokens[row] = a.backup[row]
        else:
            a.next_tokens[row] = columns[last_column] if count > 0 else a.input_ids[verified_first]
