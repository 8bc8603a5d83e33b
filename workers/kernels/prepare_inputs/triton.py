"""Compute the model inputs of a step from the host's optimistic tables, in one op."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch, padded_columns
from workers.kernels.prepare_inputs.definition import PrepareInputs

BLOCK_TOKENS = 128


def prepare_inputs(a: PrepareInputs) -> None:
    """Correct host counts, compute positions and slots, insert sampled and draft tokens.

    One program per row writes the row's tokens; one program per block of tokens writes the padding in the block.
    """
    num_rows, num_tokens, k = a.prev_position.numel(), a.token_row.numel(), a.num_speculative_tokens
    launch(_kernel, (num_rows + triton.cdiv(num_tokens, BLOCK_TOKENS),))(
        a.prev_num_scheduled, a.prev_num_drafts, a.prev_num_computed, a.prev_valid, a.next_tokens, a.draft_tokens,
        a.slot_accepted,
        a.prev_position, a.computed_host, a.query_start, a.num_scheduled, a.num_drafts, a.state_slot,
        a.host_ids, a.token_row, a.block_table,
        a.num_computed, a.seq_lens, a.accepted, a.positions, a.slots, a.input_ids, a.scheduled_drafts,
        num_rows, num_tokens, a.block_size, a.max_blocks, k, a.vocab_size,
        padded_columns(k), BLOCK_TOKENS,
    )  # fmt: skip


@kernel()
def _kernel(
    p_prev_scheduled, p_prev_drafts, p_prev_computed, p_prev_valid, p_next, p_draft, p_slot_accepted,
    p_previous, p_host, p_start, p_scheduled, p_drafts, p_state_slot, p_host_ids, p_token_row, p_table,
    p_computed, p_lens, p_accepted, p_positions, p_slots, p_ids, p_scheduled_drafts,
    num_rows, num_tokens, block_size, max_blocks, k, vocab_size, BLOCK_K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    if i_row >= num_rows:
        _padding(p_host_ids, p_token_row, p_positions, p_slots, p_ids, num_tokens, i_row - num_rows, BLOCK)
        return
    num_scheduled = tl.load(p_scheduled + i_row)
    num_drafts = tl.load(p_drafts + i_row)
    start = tl.load(p_start + i_row)
    previous = tl.load(p_previous + i_row)
    is_sampled = previous >= 0
    o_previous = tl.maximum(previous, 0)

    # Tokens before the first verified one are computed for certain.
    true = tl.load(p_prev_computed + o_previous) + tl.load(p_prev_scheduled + o_previous)
    true += tl.load(p_prev_valid + o_previous) - tl.load(p_prev_drafts + o_previous) - 1
    num_computed = tl.where(is_sampled, true, tl.load(p_host + i_row))
    tl.store(p_computed + i_row, num_computed)
    tl.store(p_lens + i_row, tl.where(num_scheduled > 0, num_computed + num_scheduled, 0))
    state_slot = tl.load(p_state_slot + i_row)
    tl.store(p_accepted + i_row, tl.load(p_slot_accepted + state_slot, mask=state_slot >= 0, other=0))

    o_draft = tl.arange(0, BLOCK_K)
    num_proposed = tl.where(is_sampled, num_drafts, 0)
    b_draft = tl.load(p_draft + o_previous * k + o_draft, mask=o_draft < num_proposed, other=NO_DRAFT)
    tl.store(p_scheduled_drafts + i_row * k + o_draft, b_draft, mask=o_draft < k)

    # Sampled tokens begin at the first verified token; a row that was not sampled has none.
    o_sampled = tl.where(is_sampled, num_scheduled - 1 - num_drafts, num_scheduled)
    for o_block in range(0, num_scheduled, BLOCK):
        o_offset = o_block + tl.arange(0, BLOCK)
        o_token = start + o_offset
        is_token = o_offset < num_scheduled
        b_position = num_computed + o_offset
        o_index = b_position // block_size
        covered = is_token & (o_index < max_blocks)
        b_block = tl.load(p_table + i_row * max_blocks + o_index, mask=covered, other=-1)
        b_slot = tl.where(b_block >= 0, b_block * block_size + b_position % block_size, PAD_SLOT)
        o_column = o_offset - o_sampled
        b_known = tl.load(p_host_ids + o_token, mask=is_token & (o_column < 0), other=0)
        b_next = tl.load(p_next + o_previous + o_column, mask=is_token & (o_column == 0), other=0)
        b_proposed = tl.load(p_draft + o_previous * k + o_column - 1, mask=is_token & (o_column > 0), other=0)
        b_id = b_known + b_next + b_proposed
        tl.store(p_positions + o_token, b_position, mask=is_token)
        tl.store(p_slots + o_token, b_slot, mask=is_token)
        # Clamped: tokens that the host does not know, and draft tokens that were not proposed or are outside the
        # vocabulary.
        tl.store(p_ids + o_token, tl.minimum(tl.maximum(b_id, 0), vocab_size - 1), mask=is_token)


@triton.jit
def _padding(p_host_ids, p_token_row, p_positions, p_slots, p_ids, num_tokens, i_block, BLOCK: tl.constexpr):
    o_token = i_block * BLOCK + tl.arange(0, BLOCK)
    is_padding = tl.load(p_token_row + o_token, mask=o_token < num_tokens, other=0) < 0
    b_zero = tl.zeros([BLOCK], dtype=tl.int64)
    b_id = tl.load(p_host_ids + o_token, mask=is_padding, other=0)
    tl.store(p_positions + o_token, b_zero, mask=is_padding)
    tl.store(p_slots + o_token, b_zero + PAD_SLOT, mask=is_padding)
    tl.store(p_ids + o_token, tl.maximum(b_id, 0), mask=is_padding)
