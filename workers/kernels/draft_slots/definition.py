"""Slot mapping of drafts: the cache slots of a drafter that runs on its own output."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments
from workers.kernels.sentinels import PAD_SLOT


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


def draft_slots(a: DraftSlots) -> None:
    """Map the drafts that are fed to the drafter again, all but the last one proposed, to slots of its cache."""
    k, size = a.num_speculative_tokens, a.block_size
    for row in range(len(a.token_index)):
        first = int(a.positions[a.token_index[row]]) + 1
        num_fed = min(a.num_proposed - 1, a.max_model_len - first) if a.num_scheduled[row] > 0 else 0
        for column in range(k):
            slot = PAD_SLOT
            if column < num_fed:
                position = first + column
                block = int(a.block_table[row * a.max_blocks + position // size])
                slot = block * size + position % size if block >= 0 else PAD_SLOT
            a.draft_slots[row * k + column] = slot
