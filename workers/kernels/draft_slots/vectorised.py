"""Slot mapping of drafts: where a drafter that runs on its own output caches what it makes of them."""

from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.sentinels import PAD_SLOT


def draft_slots(a: DraftSlots) -> None:
    """Map the drafts that are fed to the drafter again, all but the last one proposed, to slots of its cache."""
    k, num_fed, block_size, max_blocks = a.num_speculative_tokens, a.num_proposed - 1, a.block_size, a.max_blocks
    a.draft_slots.fill(PAD_SLOT)
    if num_fed <= 0:
        return
    table, positions = a.block_table.tolist(), a.positions.take(a.token_index).tolist()
    # Rows and their drafts are few: numbers are faster than arrays of so few.
    for row, (position, num_scheduled) in enumerate(zip(positions, a.num_scheduled.tolist(), strict=True)):
        if num_scheduled > 0:
            first = row * max_blocks
            for column, at in enumerate(range(position + 1, min(position + 1 + num_fed, a.max_model_len)), row * k):
                if (block := table[first + at // block_size]) >= 0:
                    a.draft_slots[column] = block * block_size + at % block_size
