"""Advance each row's recurrent (Mamba) state; store one state per speculative position.

A step has few rows and few tokens, and each state needs the one before: lists of numbers are faster than such small
arrays, except for the convolutions of windows, which need no state.
"""

import numpy as np

from workers.kernels.arithmetic.definition import DECAY
from workers.kernels.arithmetic.numpy import MASK, mix, runs, window_weights
from workers.kernels.recurrent_update.definition import RecurrentUpdate


def recurrent_update(a: RecurrentUpdate) -> None:
    width, before, tokens = a.conv_width, a.conv_width - 1, a.hidden.tolist()
    num_states, num_inputs = 2 + a.num_speculative_tokens, width + a.num_speculative_tokens
    # Row by row: the inputs of the first window, then those of the step.
    inputs: list[int] = []
    rows = []
    fields = zip(
        a.state_slot.tolist(), a.num_computed.tolist(), a.accepted.tolist(), a.query_start.tolist(),
        a.num_scheduled.tolist(), a.num_drafts.tolist(), strict=True,
    )  # fmt: skip
    for slot, num_computed, accepted, start, num_scheduled, num_drafts in fields:
        if slot < 0:
            continue
        first, at, state = len(inputs), slot * num_inputs + accepted, 0
        if num_computed > 0:
            state = a.states.item(slot * num_states + accepted)
            inputs += a.conv[at : at + before].tolist()
        else:
            # The accepted count of an unused slot is not a valid index.
            inputs += [0] * before
        own = tokens[start : start + min(num_scheduled, a.num_queries_max)]
        inputs += own
        rows.append((slot, [state], first, own, start, num_drafts))
    if not rows:
        return
    # A window that spans two rows is computed but not used.
    added = mix(np.array(inputs, np.uint64)[runs(len(inputs) - before, width)].dot(window_weights(width))).tolist()
    sums: list[int] = []
    for slot, states, first, own, _, num_drafts in rows:
        state, last = states[0], first + len(own)
        for each, word in zip(added[first:last], own, strict=True):
            state = (state * DECAY + each) & MASK
            states.append(state)
            sums.append(word + state & MASK)
        # States are stored from the one before the first verified token on.
        time, place = len(own) - 1 - num_drafts, slot * num_states
        a.states[place : place + 2 + num_drafts] = states[time:]
        place = slot * num_inputs
        a.conv[place : place + width + num_drafts] = inputs[first : last + before][time:]
    hidden, at = mix(np.array(sums, np.uint64)), 0
    for _, _, _, own, start, _ in rows:
        a.hidden[start : start + len(own)] = hidden[at : at + len(own)]
        at += len(own)
