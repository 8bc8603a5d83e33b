"""Restore recurrent states on a prefix-cache hit, from the states stored with its blocks."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.sentinels import PAD_BLOCK, PAD_STATE_SLOT


@arguments
class StateRestore(Arguments):
    """On a prefix-cache hit, load the recurrent state stored with the hit's last block.

    The slot's accepted count becomes 0.

    Rows with taken_over < 0, and padding rows, stay unchanged. The slot may still hold the count of its last owner.
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
    """Load the recurrent state of each hit into the row's slot; reset the accepted count."""
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
