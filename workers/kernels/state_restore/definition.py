"""Rows that go on from the recurrent state of a block they took over, one at a time."""

from workers.kernels.sentinels import PAD_BLOCK, PAD_STATE_SLOT
from workers.kernels.state_restore.arguments import StateRestore


def state_restore(a: StateRestore) -> None:
    """Put the state and window of each row's block where its slot is read first, and set the slot's count to 0."""
    num_states = 2 + a.num_speculative_tokens
    num_inputs = a.conv_width + a.num_speculative_tokens
    window = a.conv_width - 1
    for row in range(len(a.state_slot)):
        block = int(a.taken_over[row])
        slot = int(a.state_slot[row])
        if block == PAD_BLOCK or slot == PAD_STATE_SLOT:
            continue
        a.slot_accepted[slot] = 0
        a.states[slot * num_states] = a.block_states[block]
        for index in range(window):
            a.conv[slot * num_inputs + index] = a.block_windows[block * window + index]
