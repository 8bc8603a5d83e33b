"""Recurrent states kept with the cache blocks their tokens lie in, one accepted token at a time."""

from workers.kernels.sentinels import PAD_STATE_SLOT
from workers.kernels.state_copy.arguments import StateCopy


def state_copy(a: StateCopy) -> None:
    """Let each accepted token leave its state in its block, where the next one of the block overwrites it."""
    num_states = 2 + a.num_speculative_tokens
    num_inputs = a.conv_width + a.num_speculative_tokens
    window = a.conv_width - 1
    for row in range(len(a.state_slot)):
        slot = int(a.state_slot[row])
        if slot == PAD_STATE_SLOT:
            continue
        verified_first = int(a.num_computed[row]) + int(a.num_scheduled[row]) - 1 - int(a.num_drafts[row])
        for count in range(int(a.accepted[row]) + 1):
            # The state after `count` verified tokens belongs to the last of them, or to the token before them.
            position = verified_first + count - 1
            column = position // a.block_size
            if position < 0 or column >= a.max_blocks:
                continue
            block = int(a.block_table[row * a.max_blocks + column])
            if block < 0:
                continue
            a.block_states[block] = a.states[slot * num_states + count]
            for index in range(window):
                a.block_windows[block * window + index] = a.conv[slot * num_inputs + count + index]
