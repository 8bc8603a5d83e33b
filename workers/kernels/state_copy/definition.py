"""Store recurrent states with KV-cache blocks, at block ends and at the newest token."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments
from workers.kernels.sentinels import PAD_STATE_SLOT


def num_block_columns(block_size: int, num_speculative_tokens: int) -> int:
    """Return how many blocks the tokens verified in a step and the one before them can span."""
    return (num_speculative_tokens + block_size) // block_size + 1


@arguments
class StateCopy(Arguments):
    """Store each row's recurrent states with the KV blocks of its accepted tokens.

    States[slot, j] belongs to position base + j, where base is the position of the first verified token. Block c of a
    row gets the state at min((c + 1) * block_size, base + accepted), for every block from the one of token base - 1 on.
    So a prefill chunk that crosses into a block must end where that block begins, or be the first to reach into it.
    Padding rows (slot < 0) come last and stay unchanged; nothing is stored for a block that a row does not have.
    Source: the `align` mode of vLLM's Mamba cache, with all block boundaries of a run instead of the last one.
    """

    num_computed: Annotated[Memory, In("int64", "B")]
    num_scheduled: Annotated[Memory, In("int64", "B")]
    num_drafts: Annotated[Memory, In("int64", "B")]
    accepted: Annotated[Memory, In("int64", "B")]
    state_slot: Annotated[Memory, In("int64", "B")]
    block_table: Annotated[Memory, In("int64", "B * max_blocks")]
    states: Annotated[Memory, In("uint64", "num_state_slots * (2 + K)")]
    conv: Annotated[Memory, In("uint64", "num_state_slots * (W + K)")]
    block_states: Annotated[Memory, InOut("uint64", "num_blocks")]
    block_windows: Annotated[Memory, InOut("uint64", "num_blocks * (W - 1)")]
    block_size: int
    max_blocks: int
    num_speculative_tokens: int
    conv_width: int


def state_copy(a: StateCopy) -> None:
    """Store the recurrent state after each accepted token with the token's block.

    A later token of the block overwrites it.
    """
    num_states = 2 + a.num_speculative_tokens
    num_inputs = a.conv_width + a.num_speculative_tokens
    window = a.conv_width - 1
    for row in range(len(a.state_slot)):
        slot = int(a.state_slot[row])
        if slot == PAD_STATE_SLOT:
            continue
        verified_first = int(a.num_computed[row]) + int(a.num_scheduled[row]) - 1 - int(a.num_drafts[row])
        for count in range(int(a.accepted[row]) + 1):
            # The state after `count` verified tokens belongs to the last of them; for 0, to the token before them.
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
