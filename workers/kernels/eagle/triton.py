"""EAGLE-like drafter: a pass over the target's tokens, then a chain of draft tokens."""

import triton.language as tl

from workers.kernels.arithmetic.triton import DRAFTER_LAYER, attention, draft_hidden, kv_entry, mix
from workers.kernels.attention.triton import sum_paged
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass
from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch

BLOCK_TOKENS = 64
BLOCK_ROWS = 16
BLOCK_POSITIONS = 64


def draft_first_pass(a: DraftFirstPass) -> None:
    num_tokens = a.hidden.numel()
    launch(_first_pass_kernel, (-(-num_tokens // BLOCK_TOKENS),))(
        a.hidden, a.input_ids, a.positions, a.slots, a.token_index, a.next_tokens, a.num_scheduled,
        a.drafter_hidden, a.drafter_kv,
        num_tokens, a.token_index.numel(),
        BLOCK_TOKENS, BLOCK_ROWS,
    )  # fmt: skip


def draft_chain(a: DraftChain) -> None:
    num_rows = a.token_index.numel()
    assert a.raw.numel() == a.draft_tokens.numel() == a.draft_slots.numel() == num_rows * a.num_speculative_tokens
    launch(_chain_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.drafter_hidden, a.positions, a.token_index, a.num_scheduled, a.valid, a.state_slot, a.block_table,
        a.draft_slots, a.script, a.drafter_kv, a.raw, a.draft_tokens,
        num_rows, a.num_blocks_max * a.block_size, a.max_model_len, a.num_proposed,
        a.max_blocks,
        a.block_size, a.num_speculative_tokens, BLOCK_ROWS, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _first_pass_kernel(
    p_hidden, p_input_ids, p_positions, p_slots, p_token_index, p_next_tokens, p_num_scheduled, p_drafter_hidden,
    p_drafter_kv,
    num_tokens, num_rows,
    BLOCK_TOKENS: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    o_token = tl.program_id(0).to(tl.int64) * BLOCK_TOKENS + tl.arange(0, BLOCK_TOKENS)
    is_token = o_token < num_tokens
    b_following = tl.load(p_input_ids + o_token + 1, mask=o_token + 1 < num_tokens, other=0)
    for start in range(0, num_rows, BLOCK_ROWS):
        o_row = start + tl.arange(0, BLOCK_ROWS)
        is_row = tl.load(p_num_scheduled + o_row, mask=o_row < num_rows, other=0) > 0
        b_index = tl.load(p_token_index + o_row, mask=is_row, other=-1)
        b_next = tl.load(p_next_tokens + o_row, mask=is_row, other=0)
        # At most one row ends at a token, so a sum picks its next token.
        is_last = o_token[:, None] == b_index[None, :]
        b_following = tl.where(
            tl.max(is_last.to(tl.int32), axis=1) > 0,
            tl.sum(tl.where(is_last, b_next[None, :], 0), axis=1),
            b_following,
        )
    b_hidden = draft_hidden(tl.load(p_hidden + o_token, mask=is_token, other=0), b_following)
    tl.store(p_drafter_hidden + o_token, b_hidden, mask=is_token)
    b_position = tl.load(p_positions + o_token, mask=is_token, other=0)
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_drafter_kv + o_slot, kv_entry(b_hidden, b_position, DRAFTER_LAYER), mask=o_slot >= 0)


@kernel()
def _chain_kernel(
    p_drafter_hidden, p_positions, p_token_index, p_num_scheduled, p_valid, p_state_slot, p_block_table, p_draft_slots,
    p_script, p_drafter_kv, p_raw, p_draft_tokens,
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
    b_vector = tl.load(p_drafter_hidden + o_last, mask=is_real, other=0)
    p_row_script = p_script + tl.load(p_state_slot + o_row, mask=is_real, other=0) * max_model_len
    p_table = p_block_table + o_row * max_blocks
    b_sum, b_sum_position = sum_paged(
        p_drafter_kv, p_table, b_last, is_real, 0, length, block_size, BLOCK_ROWS, BLOCK_POSITIONS
    )
    b_raw = tl.zeros([BLOCK_ROWS], dtype=tl.uint64)
    b_draft = tl.zeros([BLOCK_ROWS], dtype=tl.int64)
    for index in range(num_proposed):
        b_position = b_last + index
        if index > 0:
            b_vector = draft_hidden(b_raw, b_draft)
            b_word = kv_entry(b_vector, b_position, DRAFTER_LAYER)
            b_sum += b_word
            b_sum_position += b_word * b_position.to(tl.uint64)
            o_slot = tl.load(p_draft_slots + o_row * k + index - 1, mask=is_real, other=PAD_SLOT)
            tl.store(p_drafter_kv + o_slot, b_word, mask=o_slot >= 0)
        o_script = tl.minimum(b_position + 2, max_model_len - 1)
        b_draft = tl.load(p_row_script + o_script, mask=is_valid, other=NO_DRAFT)
        b_raw = mix(attention(b_sum, b_sum_position, b_position) + b_vector)
        tl.store(p_raw + o_row * k + index, tl.where(is_real, b_raw, 0), mask=is_row)
        tl.store(p_draft_tokens + o_row * k + index, b_draft, mask=is_row)
    for index in range(num_proposed, k):
        tl.store(p_raw + o_row * k + index, tl.zeros([BLOCK_ROWS], dtype=tl.uint64), mask=is_row)
        tl.store(p_draft_tokens + o_row * k + index, tl.full([BLOCK_ROWS], NO_DRAFT, dtype=tl.int64), mask=is_row)
