"""Medusa heads: one small model per future position; no KV cache."""

import numpy as np

from workers.kernels.arithmetic.numpy import draft_hidden, repeated, tiled
from workers.kernels.drafting.numpy import scripted_drafts, withhold, write_raw
from workers.kernels.medusa.definition import MedusaHeads


def medusa_heads(a: MedusaHeads) -> None:
    num_rows, heads = len(a.token_index), a.num_proposed
    # Ordered by head, then by row.
    hidden = a.hidden[a.token_index[tiled(num_rows, heads)]]
    raws = draft_hidden(hidden, repeated(heads, num_rows)).reshape(heads, num_rows)
    write_raw(a, raws, np.count_nonzero(a.num_scheduled))
    tokens = a.draft_tokens.reshape(num_rows, a.num_speculative_tokens)
    scripted_drafts(a, a.positions[a.token_index], tokens)
    withhold(tokens, heads, a.valid)
