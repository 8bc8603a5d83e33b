"""Slot mapping of drafts: where a drafter that runs on its own output caches what it makes of them."""

import numpy as np

from workers.kernels.arithmetic.vectorised import integer, repeated_multiples, slots_at, tiled
from workers.kernels.draft_slots.arguments import DraftSlots
from workers.kernels.sentinels import PAD_SLOT


def draft_slots(a: DraftSlots) -> None:
    """Map the drafts that are fed to the drafter again, all but the last one proposed, to slots of its cache."""
    a.draft_slots.fill(PAD_SLOT)
    num_fed = a.num_proposed - 1
    if num_fed <= 0:
        return
    # Padding rows come last, so real ones are a prefix.
    num_real = np.count_nonzero(a.num_scheduled)
    at = a.positions.take(a.token_index[:num_real]).repeat(num_fed)
    at += tiled(num_fed, num_real)
    at += integer(1)
    first = repeated_multiples(num_real, a.max_blocks, num_fed)
    slots = slots_at(at, first, a.block_table, a.block_size, a.max_blocks, a.max_model_len)
    mapping = a.draft_slots.reshape(len(a.token_index), a.num_speculative_tokens)
    mapping[:num_real, :num_fed] = slots.reshape(num_real, num_fed)
