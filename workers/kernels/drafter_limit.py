"""A drafter with fewer positions than the target: where its cache ends, and who gets no drafts any more.

Source: vLLM PR #49343 (issue #48894), decided for each row and from true counts instead of for the whole batch.
"""

import numpy as np

from workers.kernels.signature import NO_DRAFT, PAD_SLOT, In, InOut, Out


def limit_slots(positions: In, slots: In, drafter_slots: Out, drafter_max_len: int) -> None:
    """Give tokens past the drafter's last position no slot; all arrays are [num_tokens]."""
    drafter_slots[:] = np.where(positions < drafter_max_len, slots, PAD_SLOT)


def limit_drafts(
    positions: In,
    token_index: In,
    draft_tokens: InOut,
    num_speculative_tokens: int,
    num_proposed: int,
    drafter_max_len: int,
) -> None:
    """Take its drafts from every row whose next token and drafts do not all have a position in the drafter.

    Shapes: positions [num_tokens]; token_index [num_rows]; draft_tokens [num_rows * K].
    """
    past = positions.take(token_index) + 2 + num_proposed > drafter_max_len
    draft_tokens.reshape(len(token_index), num_speculative_tokens)[past] = NO_DRAFT
