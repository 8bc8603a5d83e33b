"""A multi-token-prediction layer: at each position it sees the token there and the target's hidden word before it.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; ik_llama.cpp PR #2222 for the word carried from step to step.
"""

import numpy as np

from workers.kernels.arithmetic import DRAFTER_LAYER, arange, draft_hidden, kv_words, mix, words
from workers.kernels.arithmetic import attention as weighted
from workers.kernels.drafting import cached_sums, propose, scripted, write_scratch
from workers.kernels.signature import In, InOut, Out


def mtp_pass(
    hidden: In,
    input_ids: In,
    positions: In,
    slots: In,
    query_start: In,
    num_computed: In,
    accepted: In,
    token_index: In,
    state_slot: In,
    carried: InOut,
    drafter_kv: InOut,
) -> None:
    """Write the layer's cache for every token of the step, and carry each row's last kept hidden word to the next.

    Shapes: hidden, input_ids, positions, slots [num_tokens]; query_start, num_computed, accepted, token_index,
    state_slot [num_rows]; carried [num_state_slots] and drafter_kv [num_blocks * block_size] uint64. The first token
    of a row follows the word its step before left in `carried`, or 0 if the row has computed nothing. A row that
    keeps nothing of this step keeps what it carried. Padding rows (slot < 0) come last.
    """
    num_real = np.count_nonzero(state_slot >= 0)
    slot, start = state_slot[:num_real], query_start[:num_real]
    before = np.empty_like(hidden)
    before[1:] = hidden[:-1]
    before[0] = 0
    before[start] = carried[slot] * (num_computed[:num_real] > 0)
    stored = kv_words(draft_hidden(before, input_ids), positions, DRAFTER_LAYER)
    real = slots >= 0
    drafter_kv[slots[real]] = stored[real]
    last = token_index[:num_real] - (accepted[:num_real] == 0)
    keeps = last >= start
    carried[slot[keeps]] = hidden[last[keeps]]


def mtp_chain(
    hidden: In,
    next_tokens: In,
    positions: In,
    token_index: In,
    num_scheduled: In,
    valid: In,
    state_slot: In,
    block_table: In,
    script: In,
    drafter_kv: InOut,
    raw: Out,
    draft_tokens: Out,
    block_size: int,
    max_blocks: int,
    num_blocks_max: int,
    max_model_len: int,
    num_speculative_tokens: int,
    num_proposed: int,
) -> None:
    """Propose `num_proposed` drafts for each row: the layer runs on its next token, then on its own output.

    Shapes: hidden, positions [num_tokens]; next_tokens, token_index, num_scheduled, valid, state_slot [num_rows];
    block_table [num_rows * max_blocks]; script [num_state_slots * max_model_len]; drafter_kv as in the pass; raw
    [num_rows * K] uint64 and draft_tokens [num_rows * K]. `raw` is what the layer computes, the draft is the script's.
    A row without a valid token proposes NO_DRAFT. What the chain writes to the cache is scratch.
    In padding rows `raw` is 0.
    """
    k, num_rows = num_speculative_tokens, len(token_index)
    raw_2d, table = raw.reshape(num_rows, k), block_table.reshape(num_rows, max_blocks)
    raw_2d[:, num_proposed:] = 0
    last = positions.take(token_index)
    sums, sums_position = cached_sums(drafter_kv, table, last, block_size, num_blocks_max)
    position = last[:, None] + 1 + arange(num_proposed)
    proposed = scripted(script, state_slot, position + 1, max_model_len)
    stored = np.empty((num_rows, num_proposed), dtype=np.uint64)
    before, token = hidden.take(token_index), next_tokens
    for index in range(num_proposed):
        at = position[:, index]
        vector = draft_hidden(before, token)
        word = stored[:, index] = kv_words(vector, at, DRAFTER_LAYER)
        sums += word
        sums_position += word * words(at)
        before = raw_2d[:, index] = mix(vector + weighted(sums, sums_position, at))
        token = proposed[:, index]
    raw_2d[num_scheduled == 0] = 0
    propose(draft_tokens.reshape(num_rows, k), proposed, valid)
    write_scratch(drafter_kv, stored, block_table, position, np.count_nonzero(num_scheduled), block_size, max_model_len)
