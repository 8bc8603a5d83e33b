"""Multi-token-prediction (MTP) layer: its input is a token and the hidden state before it."""

import triton.language as tl

from workers.kernels.arithmetic.triton import DRAFTER_LAYER, attention, draft_hidden, kv_entry, mix
from workers.kernels.attention.triton import sum_paged
from workers.kernels.drafting.triton import scripted, store_scratch
from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, PAD_STATE_SLOT, kernel, launch
from workers.kernels.mtp.definition import MtpChain, MtpPass

BLOCK_TOKENS = 64
BLOCK_ROWS = 16
BLOCK_POSITIONS = 64


def mtp_pass(a: MtpPass) -> None:
    """Launch two kernels: the first reads the saved hidden states, the second replaces them."""
    num_tokens, num_rows = a.hidden.numel(), a.state_slot.numel()
    launch(_pass_kernel, (-(-num_tokens // BLOCK_TOKENS),))(
        a.hidden, a.input_ids, a.positions, a.slots, a.query_start, a.num_computed, a.state_slot, a.carried,
        a.drafter_kv,
        num_tokens, num_rows,
        BLOCK_TOKENS, BLOCK_ROWS,
    )  # fmt: skip
    launch(_carry_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.hidden, a.query_start, a.accepted, a.token_index, a.state_slot, a.carried, num_rows, BLOCK_ROWS
    )


def mtp_chain(a: MtpChain) -> None:
    """Launch programs that read nothing for padding rows."""
    num_rows = a.token_index.numel()
    launch(_chain_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.hidden, a.next_tokens, a.positions, a.token_index, a.num_scheduled, a.valid, a.state_slot, a.block_table,
        a.script, a.drafter_kv, a.raw, a.draft_tokens,
        num_rows, a.num_blocks_max * a.block_size, a.max_model_len, a.num_proposed,
        a.max_blocks,
        a.block_size, a.num_speculative_tokens, BLOCK_ROWS, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _pass_kernel(
    p_hidden, p_input_ids, p_positions, p_slots, p_query_start, p_num_computed, p_state_slot, p_carried, p_kv,
    num_tokens, num_rows,
    BLOCK_TOKENS: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_token = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    is_token = o_token < num_tokens
    b_before = tl.load(p_hidden + o_token - 1, mask=is_token & (o_token > 0), other=0)
    for start in range(0, num_rows, BLOCK_ROWS):
        o_row = start + tl.arange(0, BLOCK_ROWS)
        b_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
        is_real = b_slot >= 0
        b_first = tl.load(p_query_start + o_row, mask=is_real, other=-1)
        has_computed = is_real & (tl.load(p_num_computed + o_row, mask=is_real, other=0) > 0)
        b_carried = tl.load(p_carried + b_slot, mask=has_computed, other=0)
        # At most one row begins at a token, so a sum selects its word.
        is_first = o_token[:, None] == b_first[None, :]
        b_before = tl.where(
            tl.max(is_first.to(tl.int32), axis=1) > 0,
            tl.sum(tl.where(is_first, b_carried[None, :], 0), axis=1),
            b_before,
        )
    b_vector = draft_hidden(b_before, tl.load(p_input_ids + o_token, mask=is_token, other=0))
    b_position = tl.load(p_positions + o_token, mask=is_token, other=0)
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_kv + o_slot, kv_entry(b_vector, b_position, DRAFTER_LAYER), mask=o_slot >= 0)


@kernel()
def _carry_kernel(
    p_hidden, p_query_start, p_accepted, p_token_index, p_state_slot, p_carried, num_rows, BLOCK_ROWS: tl.constexpr
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    b_slot = tl.load(p_state_slot + o_row, mask=o_row < num_rows, other=PAD_STATE_SLOT)
    is_real = b_slot >= 0
    is_empty = tl.load(p_accepted + o_row, mask=is_real, other=0) == 0
    o_last = tl.load(p_token_index + o_row, mask=is_real, other=0) - is_empty.to(tl.int64)
    keeps = is_real & (o_last >= tl.load(p_query_start + o_row, mask=is_real, other=0))
    tl.store(p_carried + b_slot, tl.load(p_hidden + o_last, mask=keeps, other=0), mask=keeps)


@kernel()
def _chain_kernel(
    p_hidden, p_next_tokens, p_positions, p_token_index, p_num_scheduled, p_valid, p_state_slot, p_block_table,
    p_script, p_kv, p_raw, p_draft_tokens,
    num_rows, length, max_model_len, num_proposed,
    max_blocks, block_size, k,
    BLOCK_ROWS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = o_row < num_rows
    is_real = is_row & (tl.load(p_num_scheduled + o_row, mask=is_row, other=0) > 0)
    is_valid = is_real & (tl.load(p_valid + o_row, mask=is_row, other=0) > 0)
    o_last = tl.load(p_token_index + o_row, mask=is_real, other=0)
    b_last = tl.load(p_positions + o_last, mask=is_real, other=0)
    b_slot = tl.load(p_state_slot + o_row, mask=is_real, other=0)
    p_table = p_block_table + o_row * max_blocks
    b_sum, b_sum_position = sum_paged(
        p_kv, p_table, b_last, is_real, 0, length, block_size, BLOCK_ROWS, BLOCK_POSITIONS
    )
    b_before = tl.load(p_hidden + o_last, mask=is_real, other=0)
    b_token = tl.load(p_next_tokens + o_row, mask=is_real, other=0)
    for index in range(num_proposed):
        b_position = b_last + 1 + index
        b_vector = draft_hidden(b_before, b_token)
        b_word = kv_entry(b_vector, b_position, DRAFTER_LAYER)
        b_sum += b_word
        b_sum_position += b_word * b_position.to(tl.uint64)
        store_scratch(p_kv, p_table, b_word, b_position, is_real, max_model_len, block_size)
        b_before = mix(b_vector + attention(b_sum, b_sum_position, b_position))
        b_token = scripted(p_script, b_slot, b_position + 1, is_real, max_model_len)
        tl.store(p_raw + o_row * k + index, tl.where(is_real, b_before, 0), mask=is_row)
        tl.store(p_draft_tokens + o_row * k + index, tl.where(is_valid, b_token, NO_DRAFT), mask=is_row)
    for index in range(num_proposed, k):
        tl.store(p_raw + o_row * k + index, tl.zeros([BLOCK_ROWS], dtype=tl.uint64), mask=is_row)
        tl.store(p_draft_tokens + o_row * k + index, tl.full([BLOCK_ROWS], NO_DRAFT, dtype=tl.int64), mask=is_row)
