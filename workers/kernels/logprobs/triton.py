"""Compute logprobs of sampled tokens and of the most likely tokens."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import NO_TOKEN, kernel, launch
from workers.kernels.logprobs import definition as shared
from workers.kernels.logprobs.definition import FlattenLogprobs, TokenLogprobs

LOGPROBS_MAX = tl.constexpr(shared.LOGPROBS_MAX)
LOGIT_SCALE = tl.constexpr(float(shared.LOGIT_SCALE))
# Small vocabularies share a compiled kernel.
BLOCK_LOGITS_MIN, BLOCK_LOGITS = 256, 1024
BLOCK_ROWS = 64
BLOCK_FLAT = 64


def token_logprobs(a: TokenLogprobs) -> None:
    width = 1 + a.num_speculative_tokens
    block = min(max(triton.next_power_of_2(a.vocab_size), BLOCK_LOGITS_MIN), BLOCK_LOGITS)
    launch(_token_kernel, (a.rows.numel(), width))(
        a.rows, a.logits, a.sampled, a.ids, a.logprobs, width, a.vocab_size, block
    )


def flatten_logprobs(a: FlattenLogprobs) -> None:
    arguments = (a.rows, a.num_sampled, a.ids, a.logprobs, a.flat_ids, a.flat_logprobs)
    launch(_flatten_kernel, (a.rows.numel(),))(*arguments, a.width, BLOCK_ROWS, BLOCK_FLAT)


@kernel()
def _token_kernel(p_rows, p_logits, p_sampled, p_ids, p_logprobs, width, vocab_size, BLOCK: tl.constexpr):
    i_column = tl.load(p_rows + tl.program_id(0)) * width + tl.program_id(1)
    token = tl.load(p_sampled + i_column)
    if token == NO_TOKEN:
        return
    p_scores = p_logits + i_column * vocab_size
    b_largest = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
    for start in range(0, vocab_size, BLOCK):
        o_token = start + tl.arange(0, BLOCK)
        b_largest = tl.maximum(b_largest, tl.load(p_scores + o_token, mask=o_token < vocab_size, other=float("-inf")))
    largest = tl.max(b_largest, axis=0) * LOGIT_SCALE
    b_total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, vocab_size, BLOCK):
        o_token = start + tl.arange(0, BLOCK)
        b_score = tl.load(p_scores + o_token, mask=o_token < vocab_size, other=float("-inf"))
        b_total += tl.exp(b_score * LOGIT_SCALE - largest)
    normal = largest + tl.log(tl.sum(b_total, axis=0))
    p_found_ids, p_found = p_ids + i_column * LOGPROBS_MAX, p_logprobs + i_column * LOGPROBS_MAX
    tl.store(p_found_ids, token)
    tl.store(p_found, tl.load(p_scores + token) * LOGIT_SCALE - normal)
    # The next token has the largest remaining logit: smaller than the last one, or equal with a higher index.
    score, place = float("inf"), -1
    for index in tl.static_range(1, LOGPROBS_MAX):
        b_score = tl.full([BLOCK], float("-inf"), dtype=tl.float32)
        b_place = tl.zeros([BLOCK], dtype=tl.int32) + vocab_size
        for start in range(0, vocab_size, BLOCK):
            o_token = start + tl.arange(0, BLOCK)
            b_one = tl.load(p_scores + o_token, mask=o_token < vocab_size, other=float("-inf"))
            is_remaining = (b_one < score) | ((b_one == score) & (o_token > place))
            is_better = (o_token < vocab_size) & is_remaining & ((b_one > b_score) | (b_place == vocab_size))
            b_score = tl.where(is_better, b_one, b_score)
            b_place = tl.where(is_better, o_token, b_place)
        score = tl.max(b_score, axis=0)
        place = tl.min(tl.where(b_score == score, b_place, vocab_size), axis=0)
        tl.store(p_found_ids + index, tl.where(place < vocab_size, place, NO_TOKEN))
        tl.store(p_found + index, score * LOGIT_SCALE - normal, mask=place < vocab_size)


@kernel()
def _flatten_kernel(
    p_rows, p_num_sampled, p_ids, p_logprobs, p_flat_ids, p_flat_logprobs,
    width,
    BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_index = tl.program_id(0)
    b_before = tl.zeros([BLOCK_ROWS], dtype=tl.int64)
    for start in range(0, i_index, BLOCK_ROWS):
        o_before = start + tl.arange(0, BLOCK_ROWS)
        b_row = tl.load(p_rows + o_before, mask=o_before < i_index, other=0)
        b_before += tl.load(p_num_sampled + b_row, mask=o_before < i_index, other=0)
    o_flat = tl.sum(b_before, axis=0) * LOGPROBS_MAX
    i_row = tl.load(p_rows + i_index)
    length = tl.load(p_num_sampled + i_row) * LOGPROBS_MAX
    o_row = i_row * width * LOGPROBS_MAX
    for start in range(0, length, BLOCK):
        o_each = start + tl.arange(0, BLOCK)
        is_each = o_each < length
        b_id = tl.load(p_ids + o_row + o_each, mask=is_each, other=NO_TOKEN)
        tl.store(p_flat_ids + o_flat + o_each, b_id, mask=is_each)
        b_logprob = tl.load(p_logprobs + o_row + o_each, mask=is_each, other=0.0)
        tl.store(p_flat_logprobs + o_flat + o_each, b_logprob, mask=is_each)
