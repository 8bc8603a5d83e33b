"""Advance the recurrent state of each row, keeping it for every speculative position.

Which places are read and written follows from the layout of a step, which many steps have: it is found once for each.
"""

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from workers.kernels.arithmetic.vectorised import (
    ZERO,
    Integers,
    Words,
    arange,
    column,
    decay_powers,
    mix,
    multiples,
    shared,
    taps,
)
from workers.kernels.recurrent_update.arguments import RecurrentUpdate


def recurrent_update(a: RecurrentUpdate) -> None:
    """Read states[slot, accepted], run over the tokens of the row, and write a state for each position to verify."""
    width, queries, k = a.conv_width, a.num_queries_max, a.num_speculative_tokens
    layout = (a.state_slot.tobytes(), a.query_start.tobytes(), a.num_scheduled.tobytes(), a.num_drafts.tobytes())
    plan = _plan(*layout, queries, k, width)
    num_rows, num_states, num_inputs = len(plan.first_state), 2 + k, width + k
    # By time, then by row: the inputs of the first window and of the step, and the states before and after each.
    history = np.empty((width - 1 + queries, num_rows), dtype=np.uint64)
    every = np.empty((1 + queries, num_rows), dtype=np.uint64)
    committed = plan.first_state + a.accepted[:num_rows]
    (fresh,) = (a.num_computed[:num_rows] <= ZERO).nonzero()
    # The count of a slot nobody has used is no index.
    committed[fresh] = ZERO
    read_committed(a.states, a.conv, committed, num_states, num_inputs, every[0], history[: width - 1])
    if len(fresh):
        history[:, fresh], every[:, fresh] = 0, 0

    inputs = history[width - 1 :]
    a.hidden.take(plan.tokens, out=inputs, mode="clip")
    powers, inverses = decay_powers(1 + queries, num_rows)
    added = mix(history.ravel()[_spans(queries * num_rows, num_rows, width)].dot(taps(width)))
    np.multiply(added.reshape(inputs.shape), inverses[1:], out=every[1:])
    np.add.accumulate(every, axis=0, out=every)
    every *= powers
    hidden = mix(inputs + every[1:])
    a.hidden[plan.scheduled_tokens] = hidden.ravel()[plan.scheduled]
    a.states[plan.kept_states] = every.ravel()[plan.states]
    a.conv[plan.kept_inputs] = history.ravel()[plan.inputs]


class _Plan(NamedTuple):
    """Places of a step: each real row's first state, its token at each time, and where both states and inputs go.

    Of [times, rows], flat, `scheduled` are those that there are; `states` and `inputs` those that are kept.
    """

    first_state: Integers
    tokens: Integers
    scheduled: Integers
    scheduled_tokens: Integers
    kept_states: Integers
    states: Integers
    kept_inputs: Integers
    inputs: Integers


@lru_cache(maxsize=4096)
def _plan(
    state_slot: bytes, query_start: bytes, num_scheduled: bytes, num_drafts: bytes, queries: int, k: int, width: int
) -> _Plan:
    """Return the places of a step from its layout; padding rows come last."""
    slots, starts, counts, drafts = (
        np.frombuffer(field, dtype=np.int64) for field in (state_slot, query_start, num_scheduled, num_drafts)
    )
    slot = slots[slots >= 0]
    num_rows = len(slot)
    tokens = starts[:num_rows] + column(queries)
    scheduled = np.flatnonzero(column(queries) < counts[:num_rows])
    # One time before that of the token which is verified first.
    first = (counts - drafts)[:num_rows, None] - 1
    kept = [
        shared(np.ravel(each))
        for count, times in ((2 + k, 1 + queries), (width + k, width - 1 + queries))
        for each in (
            slot[:, None] * count + arange(count),
            # After the last time comes the last one again: no count reaches it before it is written again.
            np.minimum(first + arange(count), times - 1) * num_rows + column(num_rows),
        )
    ]
    return _Plan(shared(slot * (2 + k)), shared(tokens), scheduled, tokens.ravel()[scheduled], *kept)


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
def _spans(count: int, step: int, width: int) -> Integers:
    """Return for each n below `count` the numbers n, n + step, ..., `width` of them: [count, width]."""
    return shared(column(count) + multiples(width, step))


@cache
def _windows(num_slots: int, num_states: int, num_inputs: int, length: int) -> Integers:
    """Return for each state of each slot the places of the inputs of its window: [length, num_slots * num_states]."""
    first = column(num_slots) * num_inputs + arange(num_states)
    return shared(first.ravel() + column(length))
