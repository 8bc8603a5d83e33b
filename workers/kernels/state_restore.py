"""Let rows go on from the recurrent states that are kept with the blocks they took over."""

from workers.kernels.arithmetic import arange
from workers.kernels.signature import In, InOut


def state_restore(
    taken_over: In,
    state_slot: In,
    block_states: In,
    block_windows: In,
    slot_accepted: InOut,
    states: InOut,
    conv: InOut,
    num_speculative_tokens: int,
    conv_width: int,
) -> None:
    """Put the state and window of block taken_over[row] where the row's slot is read first, and set its count to 0.

    Shapes: taken_over, state_slot [num_rows]; block_states [num_blocks] and block_windows [num_blocks * (W - 1)]
    uint64; slot_accepted [num_state_slots]; states [num_state_slots * (2 + K)] and conv [num_state_slots * (W + K)]
    uint64. Rows with taken_over < 0, and padding rows, are left alone. The slot may hold any count of its last owner.
    """
    k, width = num_speculative_tokens, conv_width
    joins = (taken_over >= 0) & (state_slot >= 0)
    block, slot = taken_over[joins], state_slot[joins]
    slot_accepted[slot] = 0
    states[slot * (2 + k)] = block_states[block]
    conv[slot[:, None] * (width + k) + arange(width - 1)] = block_windows.reshape(-1, width - 1)[block]
