"""Advance the recurrent state of each row, keeping it for every speculative position."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.arithmetic.definition import advance, after_recurrent
from workers.kernels.sentinels import PAD_STATE_SLOT


@arguments
class RecurrentUpdate(Arguments):
    """Read states[slot, accepted], run over the tokens of the row, and write a state for each position to verify.

    States[slot, 0] becomes the state before the token that is verified first, states[slot, 1 + j] the one after the
    j-th verified token; the window that belongs to states[slot, j] is conv[slot, j : j + W - 1]. A row that has
    computed nothing starts from zero, whatever its slot holds. Padding rows (slot < 0) come last and are left
    alone. A slot is undefined behind 2 + d states and W + d inputs, which no count of this step leads to.

    A slot after a step that verified d = 2 drafts x, y behind token t; K = 3, W = 4, and a, b, c came before t::

        accepted     0          1         2         3         (what `count_sampled` finds; the next step reads there)
        states       before t   after t   after x   after y   -
        conv         a  b  c  t  x  y  -
        window of    [0: a b c]   [1: b c t]   [2: c t x]   [3: t x y]

    Accepted is 0 if nothing valid was sampled: t is run again. Where one is sampled and no draft is kept it is 1.

    Source: Mamba-2 (arXiv 2405.21060) for the recurrence; vLLM's state slots for the layout, with one slot more, so
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
    """Run each row over its tokens from its committed state on; keep state and inputs of every verified position."""
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
