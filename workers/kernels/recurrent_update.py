"""Advance the recurrent state of each row, keeping it for every speculative position."""

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic import (
    ZERO,
    Integers,
    column,
    decay_powers,
    integer,
    mix,
    repeated,
    taps,
    tiled,
)
from workers.kernels.signature import In, InOut


def recurrent_update(
    hidden: InOut,
    num_computed: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    state_slot: In,
    accepted: In,
    states: InOut,
    conv: InOut,
    num_queries_max: int,
    num_speculative_tokens: int,
    conv_width: int,
) -> None:
    """Read states[slot, accepted], run over the tokens of the row, and write a state for each position to verify.

    Shapes: hidden [num_tokens] uint64; the row arguments [num_rows]; states [num_state_slots * (2 + K)] and
    conv [num_state_slots * (W + K)] uint64.
    States[slot, 0] becomes the state before the token that is verified first, states[slot, 1 + j] the one after the
    j-th verified token; the window that belongs to states[slot, j] is conv[slot, j : j + W - 1]. A row that has
    computed nothing starts from zero, whatever its slot holds. Padding rows (slot < 0) come last and are left alone.
    Source: Mamba-2 (arXiv 2405.21060) for the recurrence; vLLM's state slots for the layout, with one slot more, so
    that a row without a valid token (accepted = 0) can be run again.
    """
    num_rows, width, queries = np.count_nonzero(state_slot >= ZERO), conv_width, num_queries_max
    num_states, num_inputs = 2 + num_speculative_tokens, width + num_speculative_tokens
    slot, lengths = state_slot[:num_rows], num_scheduled[:num_rows]
    first_state, first_input = slot * integer(num_states), slot * integer(num_inputs)
    is_fresh = num_computed[:num_rows] <= ZERO
    # The count of a slot nobody has used is no index.
    committed = accepted[:num_rows].copy()
    np.copyto(committed, ZERO, where=is_fresh)
    # By time, then by row.
    history = np.empty((width - 1 + queries, num_rows), dtype=np.uint64)
    every = np.empty((1 + queries, num_rows), dtype=np.uint64)
    history[: width - 1] = conv.take((first_input + committed) + column(width - 1))
    every[0] = states.take(first_state + committed)
    if np.count_nonzero(is_fresh):
        history[:, is_fresh], every[:, is_fresh] = 0, 0

    index = query_start[:num_rows] + column(queries)
    inputs = hidden.take(index, mode="clip")
    history[width - 1 :] = inputs
    weights = taps(width)
    added = history[:queries] * weights[0]
    for tap in range(1, width):
        added += history[tap : tap + queries] * weights[tap]
    powers, inverses = decay_powers(1 + queries, num_rows)
    np.multiply(mix(added), inverses[1:], out=every[1:])
    np.add.accumulate(every, axis=0, out=every)
    every *= powers
    inputs += every[1:]
    is_query = (column(queries) < lengths).ravel()
    hidden[index.ravel()[is_query]] = mix(inputs).ravel()[is_query]

    base = lengths - num_drafts[:num_rows]
    base -= integer(1)
    _keep(states, first_state, every, base, num_states)
    _keep(conv, first_input, history, base, num_inputs)


def _keep(memory: NDArray[np.uint64], first: Integers, values: NDArray[np.uint64], base: Integers, count: int) -> None:
    """Write for each row its values [times, num_rows] of `count` times from `base` on to its own place.

    After the last time comes whatever lies there: no count reaches it before it is written again.
    """
    num_rows = len(first)
    time = base.repeat(count)
    time += tiled(count, num_rows)
    np.minimum(time, integer(len(values) - 1), out=time)
    time *= integer(num_rows)
    time += repeated(num_rows, count)
    place = first.repeat(count)
    place += tiled(count, num_rows)
    memory[place] = values.take(time)
