"""Medusa heads: one small model a future position, over the hidden word of the last accepted token, without a cache.

Source: Medusa, arXiv 2401.10774, section 2.1; vLLM's `medusa` proposer for the row that the heads are fed.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import arange, draft_hidden
from workers.kernels.drafting.vectorised import propose, scripted
from workers.kernels.medusa.arguments import MedusaHeads


def medusa_heads(a: MedusaHeads) -> None:
    """Propose `num_proposed` drafts for each row at once, a head each, from the hidden word of its last kept token."""
    num_rows = len(a.token_index)
    raw_2d, heads = a.raw.reshape(num_rows, a.num_speculative_tokens), arange(a.num_proposed)
    each_head = np.broadcast_to(heads, (num_rows, a.num_proposed))
    raw_2d[:, : a.num_proposed] = draft_hidden(a.hidden.take(a.token_index)[:, None], each_head)
    raw_2d[:, a.num_proposed :] = 0
    raw_2d[a.num_scheduled == 0] = 0
    position = a.positions.take(a.token_index)[:, None] + 2 + heads
    proposed = scripted(a.script, a.state_slot, position, a.max_model_len)
    propose(a.draft_tokens.reshape(num_rows, a.num_speculative_tokens), proposed, a.valid)
