"""Multi-token-prediction (MTP) layer: its input is a token and the hidden state before it."""

import numpy as np

from workers.kernels.arithmetic.numpy import (
    DRAFTER_LAYER,
    PLACE_STEP,
    ZERO,
    draft_hidden,
    kv_entries,
    kv_terms,
    mix,
    store,
)
from workers.kernels.drafting.numpy import cached_sums, extend_sums, propose, scripted_drafts, write_raw, write_scratch
from workers.kernels.mtp.definition import MtpChain, MtpPass


def mtp_pass(a: MtpPass) -> None:
    num_real = np.count_nonzero(a.state_slot >= ZERO)
    slot, start = a.state_slot[:num_real], a.query_start[:num_real]
    before = np.empty_like(a.hidden)
    before[1:] = a.hidden[:-1]
    before[start] = a.carried[slot] * (a.num_computed[:num_real] > ZERO)
    store(a.drafter_kv, a.slots, kv_entries(draft_hidden(before, a.input_ids), a.positions, DRAFTER_LAYER))
    last = a.token_index[:num_real] - (a.accepted[:num_real] == ZERO)
    keeps = last >= start
    a.carried[slot[keeps]] = a.hidden[last[keeps]]


def mtp_chain(a: MtpChain) -> None:
    num_rows, num_real = len(a.token_index), np.count_nonzero(a.num_scheduled)
    last = a.positions[a.token_index]
    seen, sums = cached_sums(a, last)
    proposed = scripted_drafts(a, last)[:, : a.num_proposed]
    # Ordered by draft index, then by row.
    raws, stored = np.empty((2, a.num_proposed, num_rows), np.uint64)
    place, before, token = kv_terms(last, DRAFTER_LAYER), a.hidden[a.token_index], a.next_tokens
    for index in range(a.num_proposed):
        vector = draft_hidden(before, token)
        place += PLACE_STEP
        extend_sums(seen, sums, mix(np.add(vector, place, stored[index])))
        before, token = mix(np.add(vector, seen, raws[index])), proposed[:, index]
    write_raw(a, raws, num_real)
    propose(a.draft_tokens.reshape(num_rows, a.num_speculative_tokens), proposed, a.valid)
    write_scratch(a, stored, last, num_real)
