"""Definition of the recurrent layer: a loop over rows and their tokens."""

from workers.kernels.arithmetic.definition import advance, after_recurrent
from workers.kernels.recurrent_update.arguments import RecurrentUpdate
from workers.kernels.sentinels import PAD_STATE_SLOT


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
