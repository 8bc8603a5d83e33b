"""Advance the recurrent state of each row, keeping it for every speculative position."""

import numpy as np

from workers.kernels.arithmetic import arange, column, decay_powers, integer, mix, taps
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
    zero, one = integer(0), integer(1)
    num_rows, width, queries = np.count_nonzero(state_slot >= zero), conv_width, num_queries_max
    states_2d = states.reshape(-1, 2 + num_speculative_tokens)
    conv_2d = conv.reshape(-1, width + num_speculative_tokens)
    slot = state_slot[:num_rows]
    is_fresh = num_computed[:num_rows] <= zero
    # The count of a slot nobody has used is no index.
    committed = accepted[:num_rows].copy()
    np.copyto(committed, zero, where=is_fresh)
    lengths = num_scheduled[:num_rows]
    history = np.empty((num_rows, width - 1 + queries), dtype=np.uint64)
    every = np.empty((num_rows, 1 + queries), dtype=np.uint64)
    history[:, : width - 1] = conv_2d[slot[:, None], committed[:, None] + arange(width - 1)]
    every[:, 0] = states_2d[slot, committed]
    history[is_fresh], every[is_fresh] = 0, 0

    index = query_start[:num_rows, None] + arange(queries)
    is_query = arange(queries) < lengths[:, None]
    inputs = hidden.take(np.minimum(index, integer(len(hidden) - 1)))
    history[:, width - 1 :] = inputs
    weights = taps(width)
    added = history[:, :queries] * weights[0]
    for tap in range(1, width):
        added += history[:, tap : tap + queries] * weights[tap]
    powers, inverses = decay_powers(queries)
    added = mix(added)
    added *= inverses
    after = every[:, 1:]
    np.add.accumulate(added, axis=1, out=after)
    after += every[:, :1]
    after *= powers
    inputs += after
    hidden[index[is_query]] = mix(inputs)[is_query]

    # Columns past 1 + d take whatever lies there: no count reaches them before they are written again.
    base = (lengths - one - num_drafts[:num_rows])[:, None]
    rows, last = column(num_rows), integer(queries + width - 2)
    states_2d[slot] = every[rows, np.minimum(base + arange(2 + num_speculative_tokens), integer(queries))]
    conv_2d[slot] = history[rows, np.minimum(base + arange(width + num_speculative_tokens), last)]
