"""Block drafter (DFlash): one pass over mask tokens gives all draft tokens of a row."""

import triton.language as tl

from workers.kernels.arithmetic.triton import DRAFTER_LAYER, attention, draft_hidden, kv_entry, mix
from workers.kernels.attention.triton import sum_paged
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.drafting.triton import scripted, store_scratch
from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch

BLOCK_TOKENS = 128
BLOCK_ROWS = 16
BLOCK_POSITIONS = 64


def dflash_context(a: DflashContext) -> None:
    num_tokens = a.hidden.numel()
    grid = (-(-num_tokens // BLOCK_TOKENS),)
    launch(_context_kernel, grid)(a.hidden, a.positions, a.slots, a.drafter_kv, num_tokens, BLOCK_TOKENS)


def dflash_block(a: DflashBlock) -> None:
    """Launch programs that read nothing for padding rows."""
    num_rows = a.token_index.numel()
    launch(_block_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.hidden, a.next_tokens, a.positions, a.token_index, a.num_scheduled, a.valid, a.state_slot, a.block_table,
        a.script, a.drafter_kv, a.raw, a.draft_tokens,
        num_rows, a.num_blocks_max * a.block_size, a.max_model_len, a.num_proposed, a.vocab_size,
        a.max_blocks,
        a.block_size, a.num_speculative_tokens, BLOCK_ROWS, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _context_kernel(p_hidden, p_positions, p_slots, p_kv, num_tokens, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    b_hidden = tl.load(p_hidden + o_token, mask=is_token, other=0)
    b_position = tl.load(p_positions + o_token, mask=is_token, other=0)
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_kv + o_slot, kv_entry(b_hidden, b_position, DRAFTER_LAYER), mask=o_slot >= 0)


@kernel()
def _block_kernel(
    p_hidden, p_next_tokens, p_positions, p_token_index, p_num_scheduled, p_valid, p_state_slot, p_block_table,
    p_script, p_kv, p_raw, p_draft_tokens,
    num_rows, length, max_model_len, num_proposed, vocab_size,
    max_blocks, block_size, k,
    BLOCK_ROWS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr,
):  # fmt: skip
    o_row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    is_row = o_row < num_rows
    is_real = is_row & (tl.load(p_num_scheduled + o_row, mask=is_row, other=0) > 0)
    is_valid = is_real & (tl.load(p_valid + o_row, mask=is_row, other=0) > 0)
    o_last = tl.load(p_token_index + o_row, mask=is_real, other=0)
    b_first = tl.load(p_positions + o_last, mask=is_real, other=0) + 1
    b_slot = tl.load(p_state_slot + o_row, mask=is_real, other=0)
    p_table = p_block_table + o_row * max_blocks
    b_sum, b_sum_position = sum_paged(
        p_kv, p_table, b_first - 1, is_real, 0, length, block_size, BLOCK_ROWS, BLOCK_POSITIONS
    )
    b_hidden = tl.load(p_hidden + o_last, mask=is_real, other=0)
    b_token = tl.load(p_next_tokens + o_row, mask=is_real, other=0)
    b_anchor = draft_hidden(b_hidden, b_token)
    b_mask = draft_hidden(b_hidden, tl.zeros([BLOCK_ROWS], dtype=tl.int64) + vocab_size)
    for at in range(num_proposed + 1):
        b_position = b_first + at
        b_vector = tl.where(at == 0, b_anchor, b_mask)
        b_word = kv_entry(b_vector, b_position, DRAFTER_LAYER)
        store_scratch(p_kv, p_table, b_word, b_position, is_real, max_model_len, block_size)
        if at > 0:
            b_seen = attention(b_sum, b_sum_position, b_position)
            for other in range(num_proposed + 1):
                b_other = kv_entry(tl.where(other == 0, b_anchor, b_mask), b_first + other, DRAFTER_LAYER)
                b_seen += b_other * (2 * tl.abs(at - other) + 1).to(tl.uint64)
            b_draft = scripted(p_script, b_slot, b_position, is_real, max_model_len)
            o_column = o_row * k + at - 1
            tl.store(p_raw + o_column, tl.where(is_real, mix(b_vector + b_seen), 0), mask=is_row)
            tl.store(p_draft_tokens + o_column, tl.where(is_valid, b_draft, NO_DRAFT), mask=is_row)
    for index in range(num_proposed, k):
        tl.store(p_raw + o_row * k + index, tl.zeros([BLOCK_ROWS], dtype=tl.uint64), mask=is_row)
        tl.store(p_draft_tokens + o_row * k + index, tl.full([BLOCK_ROWS], NO_DRAFT, dtype=tl.int64), mask=is_row)
