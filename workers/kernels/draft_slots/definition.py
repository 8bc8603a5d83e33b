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
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        for column in range(k):
            is_fed = a.num_scheduled[row] > 0 and column + 1 < a.num_proposed
            a.draft_slots[row * k + column] = _slot(a, row, column) if is_fed else PAD_SLOT


def _slot(a: DraftSlots, row: int, column: int) -> int:
    """Return the slot of a draft."""
    position = int(a.positions[int(a.token_index[row])]) + 1 + column
    if position >= a.max_model_len:
        return PAD_SLOT
    block = int(a.block_table[row * a.max_blocks + position // a.block_size])
    return block * a.block_size + position % a.block_size if block >= 0 else PAD_SLOT
