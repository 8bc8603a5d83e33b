"""Turn the host's optimistic tables into the inputs of the model: one op for everything before the model."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class PrepareInputs(Arguments):
    """Correct the counts, lay the batch out, and overlay the host's token ids with what the step before sampled.

    Counts are read from one buffer and written to another, so rows may move freely. `accepted` says which
    speculative position of a row's state slot is the committed one. Ids outside the vocabulary are clamped. Padding
    rows have length and accepted count 0, padding tokens position 0 and PAD_SLOT.
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
