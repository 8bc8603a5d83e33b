"""Slot mapping of drafts: where a drafter that runs on its own output caches what it makes of them."""

import numpy as np

from workers.kernels.arithmetic.vectorised import ZERO, integer, multiples, tiled
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
    behind = a.positions.take(a.token_index[:num_real])
    behind += integer(1)
    at = behind.repeat(num_fed)
    at += tiled(num_fed, num_real)
    size, block = integer(a.block_size), at // integer(a.block_size)
    entry = multiples(num_real, a.max_blocks).repeat(num_fed)
    entry += np.minimum(block, integer(a.max_blocks - 1))
    slots = a.block_table.take(entry)
    is_mapped = slots >= ZERO
    is_mapped &= at < integer(a.max_model_len)
    # block * size + at % size, where at % size = at - (at // size) * size.
    slots -= block
    slots *= size
    slots += at
    mapping = a.draft_slots.reshape(len(a.token_index), a.num_speculative_tokens)
    mapping[:num_real, :num_fed] = np.where(is_mapped, slots, integer(PAD_SLOT)).reshape(num_real, num_fed)
