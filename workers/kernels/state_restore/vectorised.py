"""Let rows go on from the recurrent states that are kept with the blocks they took over."""

from workers.kernels.arithmetic.vectorised import arange
from workers.kernels.state_restore.arguments import StateRestore


def state_restore(a: StateRestore) -> None:
    """Put the state and window of block taken_over[row] where the row's slot is read first, and set its count to 0."""
    k, width = a.num_speculative_tokens, a.conv_width
    joins = (a.taken_over >= 0) & (a.state_slot >= 0)
    block, slot = a.taken_over[joins], a.state_slot[joins]
    a.slot_accepted[slot] = 0
    a.states[slot * (2 + k)] = a.block_states[block]
    a.conv[slot[:, None] * (width + k) + arange(width - 1)] = a.block_windows.reshape(-1, width - 1)[block]
