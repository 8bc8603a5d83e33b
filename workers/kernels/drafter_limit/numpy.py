"""Limit of a drafter with fewer positions than the target: where its cache ends."""

import numpy as np

from workers.kernels.drafter_limit.definition import LimitSlots
from workers.kernels.sentinels import PAD_SLOT


def limit_slots(a: LimitSlots) -> None:
    a.drafter_slots[:] = np.where(a.positions < a.drafter_max_len, a.slots, PAD_SLOT)
