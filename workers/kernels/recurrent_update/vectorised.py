"""Advance the recurrent state of each row, keeping it for every speculative position."""

import numpy as np
from numpy.typing import NDArray

from workers.kernels.arithmetic.vectorised import (
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
from workers.kernels.recurrent_update.arguments import RecurrentUpdate


def recurrent_update(a: RecurrentUpdate) -> None:
    """Read states[slot, accepted], run over the tokens of the row, and write a state for each position to verify."""
    num_rows, width, queries = np.count_nonzero(a.state_slot >= ZERO), a.conv_width, a.num_queries_max
    num_states, num_inputs = 2 + a.num_speculative_tokens, width + a.num_speculative_tokens
    slot, lengths = a.state_slot[:num_rows], a.num_scheduled[:num_rows]
    first_state, first_input = slot * integer(num_states), slot * integer(num_inputs)
    is_fresh = a.num_computed[:num_rows] <= ZERO
    # The count of a slot nobody has used is no index.
    committed = a.accepted[:num_rows].copy()
    np.copyto(committed, ZERO, where=is_fresh)
    # By time, then by row.
    history = np.empty((width - 1 + queries, num_rows), dtype=np.uint64)
    every = np.empty((1 + queries, num_rows), dtype=np.uint64)
    history[: width - 1] = a.conv.take((first_input + committed) + column(width - 1))
    every[0] = a.states.take(first_state + committed)
    if np.count_nonzero(is_fresh):
        history[:, is_fresh], every[:, is_fresh] = 0, 0

    index = a.query_start[:num_rows] + column(queries)
    inputs = a.hidden.take(index, mode="clip")
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
    a.hidden[index.ravel()[is_query]] = mix(inputs).ravel()[is_query]

    base = lengths - a.num_drafts[:num_rows]
    base -= integer(1)
    _keep(a.states, first_state, every, base, num_states)
    _keep(a.conv, first_input, history, base, num_inputs)


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
