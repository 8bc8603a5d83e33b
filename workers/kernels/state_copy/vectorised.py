"""Keep recurrent states with cache blocks: of a full block the state at its end, of the last block the newest one."""

from workers.kernels.state_copy.arguments import StateCopy, num_block_columns


def state_copy(a: StateCopy) -> None:
    """Copy each row's states to the blocks its accepted tokens lie in: as many as were really reached."""
    k, width, size = a.num_speculative_tokens, a.conv_width, a.block_size
    base = a.num_computed + a.num_scheduled - 1 - a.num_drafts
    rows = zip(a.state_slot.tolist(), base.tolist(), a.accepted.tolist(), strict=True)
    # Rows reach a block or two: one by one they are faster than as arrays of so few.
    for row, (slot, verified_first, accepted) in enumerate(rows):
        if slot < 0:
            break
        kept, first = verified_first + accepted, max(verified_first - 1, 0) // size
        for column in range(first, min(first + num_block_columns(size, k), a.max_blocks)):
            block = int(a.block_table[row * a.max_blocks + column])
            if column * size < kept and block >= 0:
                offset = min((column + 1) * size, kept) - verified_first
                a.block_states[block] = a.states[slot * (2 + k) + offset]
                first_input = slot * (width + k) + offset
                window = a.conv[first_input : first_input + width - 1]
                a.block_windows[block * (width - 1) : (block + 1) * (width - 1)] = window
