"""Limit of a drafter with fewer positions than the target: no slots and drafts past its last.

Source: vLLM PR #49343 (issue #48894); here decided per row and from true counts, not for the whole batch.
"""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, Out, arguments
from workers.kernels.sentinels import NO_DRAFT, PAD_SLOT


@arguments
class LimitSlots(Arguments):
    """Set the slots of tokens past the drafter's last position to PAD_SLOT.

    All arrays are [num_tokens].
    """

    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T")]
    drafter_slots: Annotated[Memory, Out("int64", "T")]
    drafter_max_len: int


@arguments
class LimitDrafts(Arguments):
    """Remove a row's draft tokens if any of them is past the drafter's last position.

    The same if the next token is.
    """

    positions: Annotated[Memory, In("int64", "T")]
    token_index: Annotated[Memory, In("int64", "B")]
    draft_tokens: Annotated[Memory, InOut("int64", "B * K")]
    num_speculative_tokens: int
    num_proposed: int
    drafter_max_len: int


def limit_slots(a: LimitSlots) -> None:
    """Set the slots of tokens past the drafter's last position to PAD_SLOT."""
    a.drafter_slots[:] = np.where(a.positions < a.drafter_max_len, a.slots, PAD_SLOT)


def limit_drafts(a: LimitDrafts) -> None:
    """Remove a row's draft tokens if any of them is past the drafter's last position.

    The same if the next token is.
    """
    k = a.num_speculative_tokens
    for row in range(len(a.token_index)):
        last_kept = int(a.positions[int(a.token_index[row])])
        last_needed = last_kept + 1 + a.num_proposed
        if last_needed >= a.drafter_max_len:
            for column in range(k):
                a.draft_tokens[row * k + column] = NO_DRAFT
