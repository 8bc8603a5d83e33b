"""Find the token each row's drafts follow, without removing rejected tokens from the batch."""

import numpy as np

from workers.kernels.signature import In, Out


def prepare_inputs_padded(
    query_start: In, num_scheduled: In, num_drafts: In, discard: In, valid: In, token_index: Out
) -> None:
    """Set token_index to the flat index of each row's last kept token.

    Shapes: all [num_rows]. A row that keeps none of its verified tokens points at the first of them; its drafts are
    not used. Padding rows point at index 0.
    """
    rejected = np.where(discard > 0, 0, np.minimum(num_drafts + 1 - valid, num_drafts))
    np.multiply(query_start + num_scheduled - 1 - rejected, num_scheduled > 0, out=token_index)
