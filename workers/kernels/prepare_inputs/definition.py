"""Compute the model inputs of a step from the host's optimistic tables, in one op."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.sentinels import NO_DRAFT, NO_PREVIOUS_ROW, PAD_ROW, PAD_SLOT, PAD_STATE_SLOT


@arguments
class PrepareInputs(Arguments):
    """Correct host counts, compute positions and slots, insert sampled and draft tokens.

    Counts are read from one buffer and written to another, so batch rows may move freely. `accepted` is the speculative
    position of a row's state slot that is committed. Ids outside the vocabulary are clamped. Padding rows have length
    and accepted count 0, padding tokens position 0 and PAD_SLOT.
    Source: vLLM PR #32951.
    """

    prev_position: Annotated[Memory, In("int64", "B")]
    prev_num_scheduled: Annotated[Memory, In("int64", "rows_max")]
    prev_num_drafts: Annotated[Memory, In("int64", "rows_max")]
    prev_num_computed: Annotated[Memory, In("int64", "rows_max")]
    prev_valid: Annotated[Memory, In("int64", "rows_max", of=("valid",))]
    next_tokens: Annotated[Memory, In("int64", "rows_max")]
    draft_tokens: Annotated[Memory, In("int64", "rows_max * K", of=("host_drafts",))]
    slot_accepted: Annotated[Memory, In("int64", "num_state_slots")]
    computed_host: Annotated[Memory, In("int64", "B")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    host_ids: Annotated[Memory, In("int64", "T")]
    token_row: Annotated[Memory, In("int64", "T")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    num_computed: Annotated[Memory, Out("int64", "B")]
    seq_lens: Annotated[Memory, Out("int64", "B")]
    accepted: Annotated[Memory, Out("int64", "B", of=("accepted_read",))]
    positions: Annotated[Memory, Out("int64", "T")]
    slots: Annotated[Memory, Out("int64", "T")]
    input_ids: Annotated[Memory, Out("int64", "T")]
    scheduled_drafts: Annotated[Memory, Out("int64", "B * K")]
    block_size: int
    max_blocks: int
    num_speculative_tokens: int
    vocab_size: int


def prepare_inputs(a: PrepareInputs) -> None:
    """Correct each row's counts, then compute each token's position, slot and id."""
    for row in range(len(a.prev_position)):
        _correct_row(a, row)
    for token in range(len(a.token_row)):
        row = int(a.token_row[token])
        if row == PAD_ROW:
            a.positions[token] = 0
            a.slots[token] = PAD_SLOT
            token_id = int(a.host_ids[token])
        else:
            position = int(a.num_computed[row]) + token - int(a.query_start[row])
            a.positions[token] = position
            a.slots[token] = _slot(a, row, position)
            token_id = _token_id(a, row, token)
        # Clamped: tokens that the host does not know, and draft tokens that were not proposed or are outside the
        # vocabulary.
        a.input_ids[token] = min(max(token_id, 0), a.vocab_size - 1)


def _correct_row(a: PrepareInputs, row: int) -> None:
    """Compute a row's true number of computed tokens from the previous step's result.

    Copy its draft tokens and accepted count.
    """
    previous = int(a.prev_position[row])
    if previous == NO_PREVIOUS_ROW:
        num_computed = int(a.computed_host[row])
    else:
        # All tokens of the previous step, except the first verified token and its draft tokens, are computed for
        # certain.
        certain = int(a.prev_num_scheduled[previous]) - 1 - int(a.prev_num_drafts[previous])
        num_computed = int(a.prev_num_computed[previous]) + certain + int(a.prev_valid[previous])
    a.num_computed[row] = num_computed
    num_scheduled = int(a.num_scheduled[row])
    a.seq_lens[row] = num_computed + num_scheduled if num_scheduled > 0 else 0
    slot = int(a.state_slot[row])
    a.accepted[row] = 0 if slot == PAD_STATE_SLOT else a.slot_accepted[slot]
    k = a.num_speculative_tokens
    for column in range(k):
        is_scheduled = previous != NO_PREVIOUS_ROW and column < int(a.num_drafts[row])
        a.scheduled_drafts[row * k + column] = a.draft_tokens[previous * k + column] if is_scheduled else NO_DRAFT


def _slot(a: PrepareInputs, row: int, position: int) -> int:
    """Return the KV-cache slot of a row's position; PAD_SLOT if it has no block."""
    column = position // a.block_size
    if column >= a.max_blocks:
        return PAD_SLOT
    block = int(a.block_table[row * a.max_blocks + column])
    if block < 0:
        return PAD_SLOT
    return block * a.block_size + position % a.block_size


def _token_id(a: PrepareInputs, row: int, token: int) -> int:
    """Return a token's id: the previous step's sampled or draft token, else the host's."""
    previous = int(a.prev_position[row])
    verified_first = int(a.query_start[row]) + int(a.num_scheduled[row]) - 1 - int(a.num_drafts[row])
    if previous == NO_PREVIOUS_ROW or token < verified_first:
        return int(a.host_ids[token])
    if token == verified_first:
        return int(a.next_tokens[previous])
    return int(a.draft_tokens[previous * a.num_speculative_tokens + token - verified_first - 1])
