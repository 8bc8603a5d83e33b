"""Slot mapping of drafts: where a drafter that runs on its own output caches what it makes of them."""

import numpy as np

from workers.kernels.arithmetic.vectorised import repeated_multiples, slots_at, steps_ahead
from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.sentinels import PAD_SLOT


def draft_slots(a: DraftSlots) -> None:
    """Map the drafts that are fed to the drafter again, all but the last one proposed, to slots of its cache."""
    num_rows, k, num_fed = len(a.token_index), a.num_speculative_tokens, a.num_proposed - 1
    if num_fed <= 0:
        a.draft_slots.fill(PAD_SLOT)
        return
    at = a.positions.take(a.token_index).repeat(k)
    # Padding rows come last, so real ones are a prefix.
    at += steps_ahead(num_rows, np.count_nonzero(a.num_scheduled), k, num_fed)
    first = repeated_multiples(num_rows, a.max_blocks, k)
    slots_at(at, first, a.block_table, a.block_size, a.max_blocks, a.max_model_len, a.draft_slots)
