"""Advance the recurrent state of each row, keeping it for every speculative position."""

import numpy as np

from workers.kernels.arithmetic import arange, column, decay_powers, mix, taps
from workers.kernels.signature import In, InOut, Out


def gather_accepted(slot_accepted: In, state_slot: In, accepted: Out) -> None:
    """Look up the count that says which speculative position of a state slot is the committed one.

    Shapes: slot_accepted [num_state_slots]; state_slot, accepted [num_rows]. Padding rows get 0.
    """
    np.multiply(slot_accepted[np.maximum(state_slot, 0)], state_slot >= 0, out=accepted)


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
    computed nothing starts from zero, whatever its slot holds. Padding rows (slot < 0) are left alone.
    Source: Mamba-2 (arXiv 2405.21060) for the recurrence; vLLM's state slots for the layout, with one slot more, so
    that a row without a valid token (accepted = 0) can be run again.
    """
    num_rows, width = len(state_slot), conv_width
    real = state_slot >= 0
    slot = np.maximum(state_slot, 0)
    started = (real & (num_computed > 0))[:, None]
    states_2d = states.reshape(-1, 2 + num_speculative_tokens)
    conv_2d = conv.reshape(-1, width + num_speculative_tokens)
    first = np.where(started, states_2d[slot, accepted][:, None], 0)
    window = np.where(started, conv_2d[slot[:, None], accepted[:, None] + arange(width - 1)], 0)

    queries = query_start[:, None] + arange(num_queries_max)
    is_query = arange(num_queries_max) < num_scheduled[:, None]
    inputs = np.where(is_query, hidden[np.minimum(queries, len(hidden) - 1)], 0)
    history = np.concatenate([window, inputs], axis=1)
    added = history[:, :num_queries_max] * taps(width)[0]
    for index in range(1, width):
        added += history[:, index : index + num_queries_max] * taps(width)[index]
    powers, inverses = decay_powers(num_queries_max)
    added = mix(added)
    added *= inverses
    after = np.cumsum(added, axis=1)
    after += first
    after *= powers
    hidden[queries[is_query]] = mix(inputs + after)[is_query]

    every = np.concatenate([first, after], axis=1)
    base = (num_scheduled - 1 - num_drafts)[:, None]
    rows = column(num_rows)
    kept = arange(2 + num_speculative_tokens)
    wanted = real[:, None] & (kept <= 1 + num_drafts[:, None])
    source = np.clip(base + kept, 0, num_queries_max)
    states[(slot[:, None] * (2 + num_speculative_tokens) + kept)[wanted]] = every[rows, source][wanted]
    kept = arange(width + num_speculative_tokens)
    wanted = real[:, None] & (kept < width + num_drafts[:, None])
    source = np.clip(base + kept, 0, num_queries_max + width - 2)
    conv[(slot[:, None] * (width + num_speculative_tokens) + kept)[wanted]] = history[rows, source][wanted]
