"""A multi-token-prediction layer: at each position it sees the token there and the target's hidden word before it.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; ik_llama.cpp PR #2222 for the word carried from step to step.
"""

import numpy as np

from workers.kernels.arithmetic.vectorised import DRAFTER_LAYER, arange, draft_hidden, kv_words, mix, words
from workers.kernels.arithmetic.vectorised import attention as weighted
from workers.kernels.drafting.vectorised import cached_sums, propose, scripted, write_scratch
from workers.kernels.mtp.arguments import MtpChain, MtpPass


def mtp_pass(a: MtpPass) -> None:
    """Write the layer's cache for every token of the step, and carry each row's last kept hidden word to the next."""
    num_real = np.count_nonzero(a.state_slot >= 0)
    slot, start = a.state_slot[:num_real], a.query_start[:num_real]
    before = np.empty_like(a.hidden)
    before[1:] = a.hidden[:-1]
    before[0] = 0
    before[start] = a.carried[slot] * (a.num_computed[:num_real] > 0)
    stored = kv_words(draft_hidden(before, a.input_ids), a.positions, DRAFTER_LAYER)
    real = a.slots >= 0
    a.drafter_kv[a.slots[real]] = stored[real]
    last = a.token_index[:num_real] - (a.accepted[:num_real] == 0)
    keeps = last >= start
    a.carried[slot[keeps]] = a.hidden[last[keeps]]


def mtp_chain(a: MtpChain) -> None:
    """Propose `num_proposed` drafts for each row: the layer runs on its next token, then on its own output."""
    k, num_rows = a.num_speculative_tokens, len(a.token_index)
    raw_2d, table = a.raw.reshape(num_rows, k), a.block_table.reshape(num_rows, a.max_blocks)
    raw_2d[:, a.num_proposed :] = 0
    last = a.positions.take(a.token_index)
    sums, sums_position = cached_sums(a.drafter_kv, table, last, a.block_size, a.num_blocks_max)
    position = last[:, None] + 1 + arange(a.num_proposed)
    proposed = scripted(a.script, a.state_slot, position + 1, a.max_model_len)
    stored = np.empty((num_rows, a.num_proposed), dtype=np.uint64)
    before, token = a.hidden.take(a.token_index), a.next_tokens
    for index in range(a.num_proposed):
        at = position[:, index]
        vector = draft_hidden(before, token)
        word = stored[:, index] = kv_words(vector, at, DRAFTER_LAYER)
        sums += word
        sums_position += word * words(at)
        before = raw_2d[:, index] = mix(vector + weighted(sums, sums_position, at))
        token = proposed[:, index]
    raw_2d[a.num_scheduled == 0] = 0
    propose(a.draft_tokens.reshape(num_rows, k), proposed, a.valid)
    write_scratch(
        a.drafter_kv, stored, a.block_table, position, np.count_nonzero(a.num_scheduled), a.block_size, a.max_model_len
    )
