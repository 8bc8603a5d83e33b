"""Slot mapping of drafts: where a drafter that runs on its own output caches what it makes of them."""

from functools import cache

import numpy as np

from workers.kernels.arithmetic.vectorised import POSITIONS_MAX, Integers, arange, multiples, shared, slots_at
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
    at += _steps_ahead(num_rows, np.count_nonzero(a.num_scheduled), k, num_fed)
    first = _repeated_multiples(num_rows, a.max_blocks, k)
    slots_at(at, first, a.block_table, a.block_size, a.max_blocks, a.max_model_len, a.draft_slots)


@cache
def _repeated_multiples(count: int, step: int, times: int) -> Integers:
    """Return `multiples(count, step)`, each `times` times, flat."""
    return shared(multiples(count, step).repeat(times))


@cache
def _steps_ahead(num_rows: int, num_real: int, k: int, num_fed: int) -> Integers:
    """Return how far ahead of its row's last token each draft is, flat [num_rows * k]; past any end where not fed."""
    ahead = np.full((num_rows, k), POSITIONS_MAX, dtype=np.int64)
    ahead[:num_real, :num_fed] = 1 + arange(num_fed)
    return shared(ahead.ravel())
