"""Slot mapping of drafts: the cache slots of a drafter that runs on its own output."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class DraftSlots(Arguments):
    """Map the drafts that are fed to the drafter again, all but the last one proposed, to slots of its cache.

    The draft in column 0 lies one position behind the last kept token of its row. Columns without such a draft,
    positions past the model's end or the row's blocks, and padding rows, which come last, are PAD_SLOT.
    """

    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    draft_slots: Annotated[Memory, Out("int64", "B * K")]
    block_size: int
    max_blocks: int
    max_model_len: int
    num_speculative_tokens: int
    num_proposed: int
