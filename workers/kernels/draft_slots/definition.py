"""Slot mapping of drafts, one row and one draft at a time."""

from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.sentinels import PAD_SLOT


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
