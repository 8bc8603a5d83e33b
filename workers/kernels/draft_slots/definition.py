"""Slot mapping of draft tokens: KV-cache slots of a drafter that runs on its own output."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.sentinels import PAD_SLOT


@arguments
class DraftSlots(Arguments):
    """Compute the KV-cache slots of the draft tokens that a drafter takes as input.

    These are all except the last proposed one.

    The draft token in column 0 is one position after the last kept token of its row. PAD_SLOT for columns without such
    a draft token, for positions past the model's end or the row's blocks, and for padding rows, which come last.
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


def draft_slots(a: DraftSlots) -> None:
    """Compute the KV-cache slots of the draft tokens that a drafter takes as input.

    These are all except the last proposed one.
    """
    k, size = a.num_speculative_tokens, a.block_size
    table, slots = a.block_table.tolist(), [PAD_SLOT] * len(a.draft_slots)
    last = zip(a.positions[a.token_index].tolist(), a.num_scheduled.tolist(), strict=True)
    for row, (position_last, num_scheduled) in enumerate(last):
        first = position_last + 1
        num_fed = min(a.num_proposed - 1, a.max_model_len - first) if num_scheduled > 0 else 0
        for column in range(num_fed):
            position = first + column
            block = table[row * a.max_blocks + position // size]
            if block >= 0:
                slots[row * k + column] = block * size + position % size
    a.draft_slots[:] = slots
