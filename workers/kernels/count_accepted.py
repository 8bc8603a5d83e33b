"""Count the tokens each row sampled."""

import numpy as np

from workers.kernels.signature import NO_TOKEN, In, InOut, Out


def count_accepted(sampled: In, state_slot: In, accepted: Out, slot_accepted: InOut, width: int) -> None:
    """Count the valid columns of each row, and keep the count with the row's recurrent state.

    Shapes: sampled [num_rows * width]; state_slot, accepted [num_rows]; slot_accepted [num_state_slots].
    Valid tokens are a contiguous prefix, so the sum of (sampled != NO_TOKEN) is their number; a discarded row counts
    the one column it sampled, which is the neutral value. Padding rows come last and store nothing.
    Source: vLLM PR #38372.
    """
    np.add.reduce(sampled.reshape(-1, width) != NO_TOKEN, axis=1, dtype=np.int64, out=accepted)
    num_real = np.count_nonzero(state_slot >= 0)
    slot_accepted[state_slot[:num_real]] = accepted[:num_real]
