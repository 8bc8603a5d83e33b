"""Structured output on the device: checked draft tokens, bitmasks of allowed tokens."""

import triton.language as tl

from workers.kernels.grammar.definition import ApplyMasks, GrammarDrafts
from workers.kernels.launch.triton import NO_DRAFT, kernel, launch, padded_columns
from workers.kernels.process_logits import definition as shared

BITS = tl.constexpr(shared.BITS)
BLOCK_VOCABULARY = 128


def grammar_drafts(a: GrammarDrafts) -> None:
    """Launch one program per row."""
    arguments = (a.rows, a.query_start, a.num_scheduled, a.num_drafts, a.host_ids, a.input_ids, a.scheduled_drafts)
    k = a.num_speculative_tokens
    launch(_drafts_kernel, (a.rows.numel(),))(*arguments, k, padded_columns(k), num_warps=1)


def apply_masks(a: ApplyMasks) -> None:
    """Launch one program per logits row and block of tokens."""
    num_words = -(-a.vocab_size // shared.BITS)
    assert a.masks.numel() == a.columns.numel() * num_words
    grid = (a.columns.numel(), -(-a.vocab_size // BLOCK_VOCABULARY))
    launch(_masks_kernel, grid)(a.columns, a.masks, a.logits, a.vocab_size, num_words, BLOCK_VOCABULARY)


@kernel()
def _drafts_kernel(
    p_rows, p_query_start, p_num_scheduled, p_num_drafts, p_host_ids, p_input_ids, p_scheduled_drafts,
    k,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.load(p_rows + tl.program_id(0))
    num_drafts = tl.load(p_num_drafts + i_row)
    first = tl.load(p_query_start + i_row) + tl.load(p_num_scheduled + i_row) - num_drafts
    o_draft = tl.arange(0, BLOCK)
    is_draft = o_draft < num_drafts
    b_draft = tl.load(p_host_ids + first + o_draft, mask=is_draft, other=NO_DRAFT)
    tl.store(p_scheduled_drafts + i_row * k + o_draft, b_draft, mask=is_draft)
    tl.store(p_input_ids + first + o_draft, tl.maximum(b_draft, 0), mask=is_draft)


@kernel()
def _masks_kernel(p_columns, p_masks, p_logits, vocab_size, num_words, BLOCK: tl.constexpr):
    i_mask = tl.program_id(0).to(tl.int64)
    i_column = tl.load(p_columns + i_mask)
    o_token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < vocab_size
    b_words = tl.load(p_masks + i_mask * num_words + o_token // BITS, mask=is_token, other=0)
    is_left_out = is_token & (((b_words >> (o_token % BITS)) & 1) == 0)
    b_none = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    tl.store(p_logits + i_column * vocab_size + o_token, b_none, mask=is_left_out)
