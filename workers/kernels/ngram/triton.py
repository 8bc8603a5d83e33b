"""N-gram drafter on the device: propose the tokens after a match of the last tokens."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch
from workers.kernels.ngram import definition as shared
from workers.kernels.ngram.definition import NgramSearch, WriteTokens

NGRAM_MAX = shared.NGRAM_MAX
BLOCK_TOKENS = 128
BLOCK_POSITIONS = 128


def write_tokens(a: WriteTokens) -> None:
    num_tokens = a.input_ids.numel()
    grid = (-(-num_tokens // BLOCK_TOKENS),)
    launch(_write_kernel, grid)(a.input_ids, a.slots, a.drafter_kv, num_tokens, BLOCK_TOKENS)


def ngram_search(a: NgramSearch) -> None:
    """Launch one program per row; rows without a valid token are not searched."""
    buffers = (a.next_tokens, a.positions, a.token_index, a.valid, a.block_table, a.drafter_kv, a.draft_tokens)
    launch(_search_kernel, (a.token_index.numel(),))(
        *buffers,
        a.max_blocks, a.num_proposed,
        a.block_size, a.num_speculative_tokens, NGRAM_MAX, BLOCK_POSITIONS,
    )  # fmt: skip


@kernel()
def _write_kernel(p_input_ids, p_slots, p_kv, num_tokens, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    b_id = tl.load(p_input_ids + o_token, mask=is_token, other=0).to(tl.uint64)
    tl.store(p_kv + o_slot, b_id, mask=o_slot >= 0)


@kernel()
def _search_kernel(
    p_next_tokens, p_positions, p_token_index, p_valid, p_block_table, p_kv, p_draft_tokens,
    max_blocks, num_proposed, block_size, k,
    LENGTH_MAX: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    is_valid = tl.load(p_valid + i_row) > 0
    p_table = p_block_table + i_row * max_blocks
    next_token = tl.load(p_next_tokens + i_row)
    end = tl.load(p_positions + tl.load(p_token_index + i_row)) + 1
    # The key combines both: the longest match, then the rightmost; 0 means no match.
    b_best = tl.zeros([BLOCK], dtype=tl.int64)
    for start in range(0, tl.where(is_valid, end, 0), BLOCK):
        o_at = start + tl.arange(0, BLOCK).to(tl.int64)
        still_matches = o_at < end
        b_matched = tl.zeros([BLOCK], dtype=tl.int64)
        for back in tl.static_range(LENGTH_MAX):
            still_matches = still_matches & (o_at >= back)
            b_token = _token(p_kv, p_table, o_at - back, end, next_token, still_matches, block_size)
            b_last = _token(p_kv, p_table, o_at * 0 + end - back, end, next_token, still_matches, block_size)
            still_matches = still_matches & (b_token == b_last)
            b_matched += still_matches.to(tl.int64)
        b_best = tl.maximum(b_best, tl.where(b_matched > 0, b_matched * 4294967296 + o_at, 0))
    o_column = tl.arange(0, BLOCK).to(tl.int64)
    b_best = tl.zeros([BLOCK], dtype=tl.int64) + tl.max(b_best, axis=0)
    o_follows = b_best % 4294967296 + 1 + o_column
    is_known = (b_best > 0) & (o_column < num_proposed) & (o_follows <= end)
    b_draft = _token(p_kv, p_table, o_follows, end, next_token, is_known, block_size)
    tl.store(p_draft_tokens + i_row * k + o_column, tl.where(is_known, b_draft, NO_DRAFT), mask=o_column < k)


@triton.jit
def _token(p_kv, p_table, o_position, end, next_token, mask, block_size):
    """Return tokens of a row's history by position; the last one, `next_token`, has no slot yet."""
    is_cached = mask & (o_position < end)
    b_block = tl.maximum(tl.load(p_table + o_position // block_size, mask=is_cached, other=0), 0)
    b_word = tl.load(p_kv + b_block * block_size + o_position % block_size, mask=is_cached, other=0)
    return tl.where(is_cached, b_word.to(tl.int64), next_token)
