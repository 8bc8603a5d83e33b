"""Replace the host's optimistic token counts by the true ones."""

import numpy as np

from workers.kernels.signature import In, InOut


def correct_num_computed(
    prev_position: In,
    prev_num_scheduled: In,
    prev_num_drafts: In,
    computed_host: In,
    prev_valid: In,
    num_computed: InOut,
    num_rows: int,
) -> None:
    """Set num_computed[:num_rows] to the tokens computed before this step.

    Shapes: prev_position, computed_host [num_rows]; prev_num_scheduled, prev_num_drafts, prev_valid and num_computed
    [rows_max], indexed by the row of the previous step. A row that was sampled in the previous step (prev_position
    >= 0) has its count before that step, plus the tokens scheduled there except drafts and the token that was to be
    verified first, plus the valid tokens; any other row takes the host's count, which is exact then.
    All previous rows are read before any row is written, so rows may move freely.
    Source: vLLM PR #32951.
    """
    row = np.maximum(prev_position, 0)
    true = num_computed.take(row)
    true += prev_num_scheduled.take(row)
    true -= prev_num_drafts.take(row)
    true += prev_valid.take(row)
    true -= 1
    num_computed[:num_rows] = np.where(prev_position >= 0, true, computed_host)
