"""Standalone draft model: the target's layers with a KV cache of their own."""

import triton
import triton.language as tl

from workers.kernels.arithmetic.triton import DECAY, LOGIT_SHIFT, VOCABULARY, embed, kv_entry, mix, window_weight
from workers.kernels.arithmetic.triton import attention as weighted
from workers.kernels.attention.triton import attention, sum_paged
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass, attention_of, recurrent_update_of
from workers.kernels.drafting.triton import scripted, store_scratch
from workers.kernels.launch.triton import NO_DRAFT, PAD_ROW, PAD_SLOT, kernel, launch
from workers.kernels.recurrent_update.triton import block_width_of, recurrent_update

BLOCK_TOKENS = 128
BLOCK_ROWS = 16
BLOCK_POSITIONS = 64
BLOCK_VOCABULARY = 64


def draft_model_pass(a: DraftModelPass) -> None:
    """Launch the kernel that writes the KV cache, then the kernels of the target's layers."""
    num_tokens = a.input_ids.numel()
    launch(_write_kernel, (-(-num_tokens // BLOCK_TOKENS),))(
        a.input_ids, a.positions, a.slots, a.token_row, a.token_index, a.drafter_hidden, a.drafter_kv,
        num_tokens, BLOCK_TOKENS,
    )  # fmt: skip
    attention(attention_of(a))
    if a.conv_width:
        recurrent_update(recurrent_update_of(a))


def draft_model_chain(a: DraftModelChain) -> None:
    """Launch one kernel for the chain; `vocab_size` must be below 2^17."""
    num_rows, k = a.token_index.numel(), a.num_speculative_tokens
    launch(_chain_kernel, (-(-num_rows // BLOCK_ROWS),))(
        a.next_tokens, a.positions, a.token_index, a.num_scheduled, a.valid, a.accepted, a.state_slot, a.block_table,
        a.script, a.drafter_states, a.drafter_conv, a.drafter_kv, a.raw, a.own, a.draft_tokens,
        num_rows, a.num_blocks_max * a.block_size, a.max_model_len, a.num_proposed, a.vocab_size,
        a.max_blocks, 2 + k, a.conv_width + k,
        a.block_size, k, a.conv_width, block_width_of(a.conv_width),
        BLOCK_ROWS, BLOCK_POSITIONS, BLOCK_VOCABULARY,
    )  # fmt: skip


@kernel()
def _write_kernel(
    p_input_ids, p_positions, p_slots, p_token_row, p_token_index, p_hidden, p_kv, num_tokens, BLOCK: tl.constexpr
):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    b_hidden = embed(tl.load(p_input_ids + o_token, mask=is_token, other=0))
    tl.store(p_hidden + o_token, b_hidden, mask=is_token)
    o_row = tl.load(p_token_row + o_token, mask=is_token, other=PAD_ROW)
    o_last = tl.load(p_token_index + o_row, mask=o_row >= 0, other=-1)
    b_position = tl.load(p_positions + o_token, mask=is_token, other=0)
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_kv + o_slot, kv_entry(b_hidden, b_position, 0), mask=(o_slot >= 0) & (o_token <= o_last))


@triton.jit
def state_of(
    p_states, p_conv, p_accepted, o_row, b_slot, is_real, stride_states, stride_conv, k, width,
    BLOCK_WIDTH: tl.constexpr, BLOCK_ROWS: tl.constexpr,
):  # fmt: skip
    """Return the recurrent state and convolution window of rows after their accepted tokens.

    Zeros without such a layer.

    Shapes: [BLOCK_ROWS] and [BLOCK_ROWS, BLOCK_WIDTH].
    """
    o_tap = tl.arange(0, BLOCK_WIDTH).to(tl.int64)
    b_state = tl.zeros([BLOCK_ROWS], dtype=tl.uint64)
    b_window = tl.zeros([BLOCK_ROWS, BLOCK_WIDTH], dtype=tl.uint64)
    if BLOCK_WIDTH > 1:
        b_accepted = tl.load(p_accepted + o_row, mask=is_real, other=0)
        b_accepted = tl.minimum(tl.maximum(b_accepted, 0), 1 + k)
        b_state = tl.load(p_states + b_slot * stride_states + b_accepted, mask=is_real, other=0)
        o_input = (b_slot * stride_conv + b_accepted)[:, None] + o_tap[None, :]
        b_window = tl.load(p_conv + o_input, mask=is_real[:, None] & (o_tap < width - 1)[None, :], other=0)
    return b_state, b_window


@triton.jit
def run_layers(b_token, b_position, index, b_sum, b_sum_position, b_state, b_window, width, BLOCK_WIDTH: tl.constexpr):
    """Run the layers on token `index` of a chain.

    Return its hidden state, KV entry, sums, state and window.
    """
    o_tap = tl.arange(0, BLOCK_WIDTH).to(tl.int64)
    b_hidden = embed(b_token)
    b_word = kv_entry(b_hidden, b_position, 0)
    b_sum += b_word
    b_sum_position += b_word * b_position.to(tl.uint64)
    b_hidden = mix(b_hidden + weighted(b_sum, b_sum_position, b_position))
    if BLOCK_WIDTH > 1:
        # A ring buffer, as in the recurrent layer: the i-th input seen is in column i % width.
        o_seen = index + width - 1
        b_window = tl.where((o_tap == o_seen % width)[None, :], b_hidden[:, None], b_window)
        b_state = b_state * DECAY + mix(tl.sum(b_window * window_weight((o_seen - o_tap) % width)[None, :], axis=1))
        b_hidden = mix(b_hidden + b_state)
    return b_hidden, b_word, b_sum, b_sum_position, b_state, b_window


@triton.jit
def store_draft(p_raw, p_own, p_draft_tokens, o_draft, b_hidden, b_own, b_token, is_row, is_real, is_valid):
    """Store one column of draft tokens.

    Padding rows and rows without a valid token get NO_DRAFT.
    """
    tl.store(p_raw + o_draft, tl.where(is_real, b_hidden, 0), mask=is_row)
    tl.store(p_own + o_draft, tl.where(is_real, b_own, NO_DRAFT), mask=is_row)
    tl.store(p_draft_tokens + o_draft, tl.where(is_valid, b_token, NO_DRAFT), mask=is_row)


@triton.jit
def store_none(p_raw, p_own, p_draft_tokens, o_draft, is_row):
    """Store NO_DRAFT in a column for which no draft token is proposed."""
    tl.store(p_raw + o_draft, tl.zeros_like(o_draft).to(tl.uint64), mask=is_row)
    tl.store(p_own + o_draft, tl.zeros_like(o_draft) + NO_DRAFT, mask=is_row)
    tl.store(p_draft_tokens + o_draft, tl.zeros_like(o_draft) + NO_DRAFT, mask=is_row)


@kernel()
def _chain_kernel(
    p_next_tokens, p_positions, p_token_index, p_num_scheduled, p_valid, p_accepted, p_state_slot, p_block_table,
    p_script, p_states, p_conv, p_kv, p_raw, p_own, p_draft_tokens,
    num_rows, length, max_model_len, num_proposed, vocab_size,
    max_blocks, stride_states, stride_conv, block_size, k, width,
    BLOCK_WIDTH: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_POSITIONS: tl.constexpr, BLOCK_VOCABULARY: tl.constexpr,
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
    b_state, b_window = state_of(
        p_states,
        p_conv,
        p_accepted,
        o_row,
        b_slot,
        is_real,
        stride_states,
        stride_conv,
        k,
        width,
        BLOCK_WIDTH,
        BLOCK_ROWS,
    )
    b_token = tl.load(p_next_tokens + o_row, mask=is_real, other=0)
    for index in range(num_proposed):
        b_position = b_last + 1 + index
        b_hidden, b_word, b_sum, b_sum_position, b_state, b_window = run_layers(
            b_token, b_position, index, b_sum, b_sum_position, b_state, b_window, width, BLOCK_WIDTH
        )
        store_scratch(p_kv, p_table, b_word, b_position, is_real, max_model_len, block_size)
        # The key combines both: the largest score, then the lowest token id.
        b_best = tl.full([BLOCK_ROWS], -1, dtype=tl.int64)
        for start in range(0, vocab_size, BLOCK_VOCABULARY):
            o_token = start + tl.arange(0, BLOCK_VOCABULARY).to(tl.int64)
            b_score = mix(b_hidden[:, None] + ((o_token.to(tl.uint64) + 1) * VOCABULARY)[None, :]) >> LOGIT_SHIFT
            b_key = b_score.to(tl.int64) * 131072 + (131071 - o_token)[None, :]
            b_best = tl.maximum(b_best, tl.max(tl.where((o_token < vocab_size)[None, :], b_key, -1), axis=1))
        b_own = 131071 - b_best % 131072
        b_token = (b_own + scripted(p_script, b_slot, b_position + 1, is_real, max_model_len)) % vocab_size
        o_draft = o_row * k + index
        store_draft(p_raw, p_own, p_draft_tokens, o_draft, b_hidden, b_own, b_token, is_row, is_real, is_valid)
    for index in range(num_proposed, k):
        store_none(p_raw, p_own, p_draft_tokens, o_row * k + index, is_row)
