"""Medusa heads: one small model a future position, over the hidden word of the last accepted token, without a cache.

Source: Medusa, arXiv 2401.10774, section 2.1; vLLM's `medusa` proposer for the row that the heads are fed.
"""

import numpy as np

from workers.kernels.arithmetic import arange, draft_hidden
from workers.kernels.drafting import propose, scripted
from workers.kernels.signature import In, Out


def medusa_heads(
    hidden: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    state_slot: In,
    script: In,
    raw: Out,
    draft_tokens: Out,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
) -> None:
    """Propose `num_proposed` drafts for each row at once, a head each, from the hidden word of its last kept token.

    Shapes: hidden, positions [num_tokens]; token_index, num_scheduled, valid, state_slot [num_rows]; script
    [num_state_slots * max_model_len]; raw [num_rows * K] uint64 and draft_tokens [num_rows * K]. `raw` is what a head
    computes, the draft is the script's: no head sees the token that was just sampled, nor another head's draft. A row
    without a valid token proposes NO_DRAFT. In padding rows `raw` is 0.
    """
    num_rows = len(token_index)
    raw_2d, heads = raw.reshape(num_rows, num_speculative_tokens), arange(num_proposed)
    each_head = np.broadcast_to(heads, (num_rows, num_proposed))
    raw_2d[:, :num_proposed] = draft_hidden(hidden.take(token_index)[:, None], each_head)
    raw_2d[:, num_proposed:] = 0
    raw_2d[num_scheduled == 0] = 0
    position = positions.take(token_index)[:, None] + 2 + heads
    proposed = scripted(script, state_slot, position, max_model_len)
    propose(draft_tokens.reshape(num_rows, num_speculative_tokens), proposed, valid)
