"""Slot mapping of drafts, one row and one draft at a time."""

from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.sentinels import PAD_SLOT


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
