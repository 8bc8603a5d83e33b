"""Limit of a drafter with fewer positions than the target: where its cache ends, and who gets no drafts any more.

Source: vLLM PR #49343 (issue #48894), decided for each row and from true counts instead of for the whole batch.
"""

import numpy as np

from workers.kernels.drafter_limit.arguments import LimitDrafts, LimitSlots
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


def limit_slots(a: LimitSlots) -> None:
    """Give tokens past the drafter's last position no slot; all arrays are [num_tokens]."""
    a.drafter_slots[:] = np.where(a.positions < a.drafter_max_len, a.slots, PAD_SLOT)


def limit_drafts(a: LimitDrafts) -> None:
    """Take its drafts from every row whose next token and drafts do not all have a position in the drafter."""
    past = a.positions.take(a.token_index) + 2 + a.num_proposed > a.drafter_max_len
    a.draft_tokens.reshape(len(a.token_index), a.num_speculative_tokens)[past] = NO_DRAFT
