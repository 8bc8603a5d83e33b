"""Multi-token-prediction (MTP) layer: its input is a token and the hidden state before it.

Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; ik_llama.cpp PR #2222 for the word carried from step to step.
"""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.arithmetic.definition import DRAFTER_LAYER, draft_hidden, kv_entry, mix
from workers.kernels.drafting.definition import (
    attention_output,
    cached_entries,
    cleared_rows,
    script_entry,
    write_scratch,
)
from workers.kernels.drafting.shared_arguments import CachedDrafts


@arguments
class MtpPass(Arguments):
    """Write the layer's KV entries of a step; save each row's last kept hidden state.

    The input of a row's first token uses the word in `carried` that the previous step left; 0 if the row has computed
    nothing yet. A row that keeps no token of this step keeps its carried word. Padding rows (slot < 0) come last.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    input_ids: Annotated[Memory, In("int64", "T")]
    positions: Annotated[Memory, In("int64", "T")]
    slots: Annotated[Memory, In("int64", "T", of=("drafter_slots",))]
    query_start: Annotated[Memory, In("int64", "B")]
    num_computed: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    token_index: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    carried: Annotated[Memory, InOut("uint64", "num_state_slots")]
    drafter_kv: Annotated[Memory, InOut("uint64", "num_blocks * block_size")]


@arguments
class MtpChain(CachedDrafts):
    """Propose draft tokens: run the layer on each row's next token, then on its own output.

    `raw` is the layer's output; the draft token is the script's. A row without a valid token proposes NO_DRAFT. KV
    words that the chain writes are scratch. In padding rows `raw` is 0.
    """

    hidden: Annotated[Memory, In("uint64", "T")]
    next_tokens: Annotated[Memory, In("int64", "B")]


def mtp_pass(a: MtpPass) -> None:
    """Write the layer's KV entries of a step; save each row's last kept hidden state."""
    for token in range(len(a.hidden)):
        if a.slots[token] < 0:
            continue
        before = int(a.hidden[token - 1])
        for row in range(len(a.state_slot)):
            if a.state_slot[row] >= 0 and a.query_start[row] == token:
                before = int(a.carried[a.state_slot[row]]) if a.num_computed[row] > 0 else 0
        word = draft_hidden(before, int(a.input_ids[token]))
        a.drafter_kv[a.slots[token]] = kv_entry(word, int(a.positions[token]), DRAFTER_LAYER)
    for row in range(len(a.state_slot)):
        last = int(a.token_index[row])
        if a.accepted[row] == 0:
            last -= 1
        if a.state_slot[row] >= 0 and last >= a.query_start[row]:
            a.carried[a.state_slot[row]] = a.hidden[last]


def mtp_chain(a: MtpChain) -> None:
    """Propose draft tokens: run the layer on each row's next token, then on its own output."""
    for row in cleared_rows(a):
        _propose(a, row)


def _propose(a: MtpChain, row: int) -> None:
    """Propose a row's draft tokens: run the MTP layer on the next token, then on its own output."""
    k, last = a.num_speculative_tokens, int(a.token_index[row])
    position, raw, token = int(a.positions[last]), int(a.hidden[last]), int(a.next_tokens[row])
    cached = cached_entries(a, row, position)
    for index in range(a.num_proposed):
        position += 1
        vector = draft_hidden(raw, token)
        cached.append(kv_entry(vector, position, DRAFTER_LAYER))
        write_scratch(a, row, cached[-1], position)
        raw = mix(vector + attention_output(cached, position))
        token = script_entry(a, row, position + 1)
        a.raw[row * k + index] = raw
        if a.valid[row] > 0:
            a.draft_tokens[row * k + index] = token
