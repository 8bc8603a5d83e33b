"""Advance each row's recurrent (Mamba) state; store one state per verified position."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.arithmetic.definition import advance, after_recurrent
from workers.kernels.sentinels import PAD_STATE_SLOT


@arguments
class RecurrentUpdate(Arguments):
    """Advance rows from the state after accepted tokens; store a state per verified token.

    States[slot, 0] becomes the state before the first verified token, states[slot, 1 + j] the state after the j-th
    verified token; the convolution window of states[slot, j] is conv[slot, j : j + W - 1]. A row that has computed
    nothing starts from zero, regardless of the slot's content. Padding rows (slot < 0) come last and stay unchanged. A
    slot is undefined after 2 + d states and W + d inputs (d draft tokens); no accepted count of this step refers to
    that part.

    A slot after a step that verified d = 2 draft tokens x, y after token t; K = 3, W = 4; a, b, c precede t::

        accepted        0          1         2         3      (set by `count_sampled`; the next step reads there)
        states          before t   after t   after x   after y   -
        conv            a  b  c  t  x  y  -
        window of       [0: a b c]   [1: b c t]   [2: c t x]   [3: t x y]

    Accepted is 0 if no sampled token is valid: t is run again. It is 1 if a token is sampled and no draft token is
    kept.

    Source: Mamba-2 (arXiv 2405.21060) for the recurrence; vLLM's state slots for the layout, with one more slot, so
    that a row without a valid token (accepted = 0) can be run again.
    """

    hidden: Annotated[Memory, InOut("uint64", "T")]
    num_computed: Annotated[Memory, In("int64", "B")]
    query_start: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B", of=("accepted_read", "accepted_host"))]
    states: Annotated[Memory, InOut("uint64", "num_state_slots * (2 + K)")]
    conv: Annotated[Memory, InOut("uint64", "num_state_slots * (W + K)")]
    num_queries_max: int
    num_speculative_tokens: int
    conv_width: int


def recurrent_update(a: RecurrentUpdate) -> None:
    """Advance each row by its tokens, from the state after its accepted tokens.

    Store state and inputs of every verified position.
    """
    num_states = 2 + a.num_speculative_tokens
    num_inputs = a.conv_width + a.num_speculative_tokens
    for row in range(len(a.state_slot)):
        slot = int(a.state_slot[row])
        if slot == PAD_STATE_SLOT:
            continue
        if int(a.num_computed[row]) > 0:
            committed = int(a.accepted[row])
            state = int(a.states[slot * num_states + committed])
            first = slot * num_inputs + committed
            inputs = [int(a.conv[first + index]) for index in range(a.conv_width - 1)]
        else:
            state = 0
            inputs = [0] * (a.conv_width - 1)

        states = [state]
        for index in range(int(a.num_scheduled[row])):
            token = int(a.query_start[row]) + index
            inputs.append(int(a.hidden[token]))
            states.append(advance(states[-1], inputs[-a.conv_width :]))
            a.hidden[token] = after_recurrent(inputs[-1], states[-1])

        num_drafts = int(a.num_drafts[row])
        verified_first = int(a.num_scheduled[row]) - 1 - num_drafts
        for index in range(2 + num_drafts):
            a.states[slot * num_states + index] = states[verified_first + index]
        for index in range(a.conv_width + num_drafts):
            a.conv[slot * num_inputs + index] = inputs[verified_first + index]
