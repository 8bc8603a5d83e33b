"""Let rows go on from the recurrent states that are kept with the blocks they took over."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.sentinels import PAD_BLOCK, PAD_STATE_SLOT


@arguments
class StateRestore(Arguments):
    """Put the state and window of block taken_over[row] where the row's slot is read first, and set its count to 0.

    Rows with taken_over < 0, and padding rows, are left alone. The slot may hold any count of its last owner.
    """

    taken_over: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    block_states: Annotated[Memory, In("uint64", "num_blocks")]
    block_windows: Annotated[Memory, In("uint64", "num_blocks * (W - 1)")]
    slot_accepted: Annotated[Memory, InOut("int64", "num_state_slots")]
    states: Annotated[Memory, InOut("uint64", "num_state_slots * (2 + K)")]
    conv: Annotated[Memory, InOut("uint64", "num_state_slots * (W + K)")]
    num_speculative_tokens: int
    conv_width: int


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
