"""Lay a ragged batch out: the position of each token, the length of each sequence."""

import numpy as np

from workers.kernels.arithmetic import arange
from workers.kernels.signature import In, Out


def positions_and_lengths(
    num_computed: In,
    query_start: In,
    num_scheduled: In,
    token_row: In,
    positions: Out,
    seq_lens: Out,
    num_tokens: int,
) -> None:
    """Give the tokens of each row consecutive positions, from its computed count on.

    Shapes: num_computed, query_start, num_scheduled, seq_lens [num_rows]; token_row, positions [num_tokens].
    Padding tokens (token_row = PAD_ROW) have position 0, padding rows (num_scheduled = 0) length 0.
    """
    row = np.maximum(token_row, 0)
    offset = num_computed - query_start
    np.multiply(offset.take(row) + arange(num_tokens), token_row >= 0, out=positions)
    np.multiply(num_computed + num_scheduled, num_scheduled > 0, out=seq_lens)
