"""Count each row's sampled tokens and find its next token, in one op before drafting."""

import triton.language as tl

from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.launch.triton import NO_TOKEN, kernel, launch, padded_columns


def count_sampled(a: CountSampled) -> None:
    """Launch one program per row; no two rows share a state slot."""
    rows = (a.discard, a.backup, a.query_start, a.num_scheduled, a.num_drafts, a.state_slot)
    outputs = (a.slot_accepted, a.accepted, a.valid, a.next_tokens, a.token_index)
    arguments = (a.sampled, a.input_ids, *rows, *outputs)
    launch(_kernel, (a.discard.numel(),))(*arguments, a.width, a.vocab_size, padded_columns(a.width), num_warps=1)


@kernel()
def _kernel(
    p_sampled, p_ids, p_discard, p_backup, p_start, p_scheduled, p_drafts, p_state_slot,
    p_slot_accepted, p_accepted, p_valid, p_next, p_index, width, vocab_size, BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.arange(0, BLOCK)
    p_row = p_sampled + i_row * width
    b_token = tl.load(p_row + o_column, mask=o_column < width, other=NO_TOKEN)
    count = tl.sum(((b_token >= 0) & (b_token < vocab_size)).to(tl.int64))
    discarded = tl.load(p_discard + i_row) > 0
    state_slot = tl.load(p_state_slot + i_row)
    tl.store(p_accepted + i_row, count)
    tl.store(p_valid + i_row, tl.where(discarded, 0, count))
    tl.store(p_slot_accepted + state_slot, count, mask=state_slot >= 0)

    num_scheduled = tl.load(p_scheduled + i_row)
    first = tl.load(p_start + i_row) + num_scheduled - 1 - tl.load(p_drafts + i_row)
    first = tl.where(num_scheduled > 0, first, 0)
    last_column = tl.maximum(count - 1, 0)
    token = tl.where(count > 0, tl.load(p_row + last_column), tl.load(p_ids + first))
    tl.store(p_next + i_row, tl.where(discarded, tl.load(p_backup + i_row), token))
    tl.store(p_index + i_row, first + last_column)
