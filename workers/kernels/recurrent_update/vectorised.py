"""Advance the recurrent state of each row, keeping it for every speculative position."""

from functools import cache, lru_cache

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    ZERO,
    Integers,
    Words,
    arange,
    column,
    decay_powers,
    integer,
    lines,
    mix,
    multiples,
    repeated,
    shared,
    taps,
    tiled,
)
from workers.kernels.recurrent_update.arguments import RecurrentUpdate


def recurrent_update(a: RecurrentUpdate) -> None:
    """Read states[slot, accepted], run over the tokens of the row, and write a state for each position to verify."""
    num_rows, width, queries = np.count_nonzero(a.state_slot >= ZERO), a.conv_width, a.num_queries_max
    num_states, num_inputs = 2 + a.num_speculative_tokens, width + a.num_speculative_tokens
    slot = a.state_slot[:num_rows]
    # By time, then by row: the inputs of the first window and of the step, and the states before and after each.
    history = np.empty((width - 1 + queries, num_rows), dtype=np.uint64)
    every = np.empty((1 + queries, num_rows), dtype=np.uint64)
    committed = slot * integer(num_states)
    committed += a.accepted[:num_rows]
    (fresh,) = (a.num_computed[:num_rows] <= ZERO).nonzero()
    # The count of a slot nobody has used is no index.
    committed[fresh] = ZERO
    read_committed(a.states, a.conv, committed, num_states, num_inputs, every[0], history[: width - 1])
    if len(fresh):
        history[:, fresh], every[:, fresh] = 0, 0

    row, time = _rows_and_times(num_rows, queries)
    index = a.query_start[row]
    index += time
    inputs = history[width - 1 :]
    a.hidden.take(index.reshape(inputs.shape), out=inputs, mode="clip")
    powers, inverses = decay_powers(1 + queries, num_rows)
    added = mix(history.ravel()[_spans(queries * num_rows, num_rows, width)].dot(taps(width)))
    np.multiply(added.reshape(inputs.shape), inverses[1:], out=every[1:])
    np.add.accumulate(every, axis=0, out=every)
    every *= powers
    hidden = mix(inputs + every[1:])
    (is_query,) = (time < a.num_scheduled[row]).nonzero()
    a.hidden[index[is_query]] = hidden.ravel()[is_query]

    first = a.num_scheduled - a.num_drafts
    first *= integer(num_rows)
    _keep(a.states, slot, every, first, num_states)
    _keep(a.conv, slot, history, first, num_inputs)


def _keep(memory: Words, slot: Integers, values: Words, first: Integers, count: int) -> None:
    """Write for each row its values [times, num_rows] of `count` times to its slot, beginning one before `first`.

    After the last time comes the last one again: no count reaches it before it is written again.
    """
    row, behind, last = _kept_behind(len(slot), count, len(values))
    place = first[row]
    place += behind
    np.minimum(place, last, out=place)
    memory[lines(len(memory) // count, count).take(slot, axis=0).ravel()] = values.ravel()[place]


def read_committed(
    states: Words, conv: Words, committed: Integers, num_states: int, num_inputs: int, state: Words, window: Words
) -> None:
    """Read the committed states of rows into `state` [num_rows], and the inputs before them into `window` [W - 1, ...].

    Shapes: states [num_slots * num_states], conv [num_slots * num_inputs]; committed [num_rows], flat in states.
    """
    state[:] = states[committed]
    windows = _windows(len(states) // num_states, num_states, num_inputs, len(window))
    window[:] = conv[windows.take(committed, axis=1)]


@lru_cache(maxsize=16)
def _rows_and_times(num_rows: int, num_times: int) -> tuple[Integers, Integers]:
    """Return row and time of each element of [num_times, num_rows], flat."""
    return tiled(num_rows, num_times), repeated(num_times, num_rows)


@lru_cache(maxsize=16)
def _spans(count: int, step: int, width: int) -> Integers:
    """Return for each n below `count` the numbers n, n + step, ..., `width` of them: [count, width]."""
    return shared(column(count) + multiples(width, step))


@cache
def _windows(num_slots: int, num_states: int, num_inputs: int, length: int) -> Integers:
    """Return for each state of each slot the places of the inputs of its window: [length, num_slots * num_states]."""
    first = column(num_slots) * num_inputs + arange(num_states)
    return shared(first.ravel() + column(length))


@lru_cache(maxsize=1024)
def _kept_behind(num_rows: int, count: int, num_times: int) -> tuple[Integers, Integers, Integers]:
    """Return for `count` times of each row, flat, its row, and how far behind the row's `first` element they lie.

    And where the last element of the row lies. All are in [num_times, num_rows], flat; `first` is one time too late.
    """
    row = repeated(num_rows, count)
    behind = column(num_rows) + multiples(count, num_rows) - num_rows
    return row, shared(behind.ravel()), shared((num_times - 1) * num_rows + row)
