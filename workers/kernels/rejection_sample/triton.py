"""Greedy rejection sampler: verify draft tokens against the target model's argmax."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import NO_TOKEN, kernel, launch, padded_columns
from workers.kernels.rejection_sample.definition import RejectionSample

BLOCK_VOCABULARY_MIN = 256
BLOCK_VOCABULARY_MAX = 1024


def rejection_sample(a: RejectionSample) -> None:
    width, num_rows = 1 + a.num_speculative_tokens, a.num_drafts.numel()
    assert a.logits.numel() == num_rows * width * a.vocab_size
    assert a.sampled.numel() == num_rows * width
    block_columns = padded_columns(width)
    block_vocabulary = min(max(triton.next_power_of_2(a.vocab_size), BLOCK_VOCABULARY_MIN), BLOCK_VOCABULARY_MAX)
    launch(_kernel, (num_rows,))(
        a.logits, a.scheduled_drafts, a.num_scheduled, a.num_drafts, a.invalid, a.sampled,
        a.vocab_size,
        width, block_columns, block_vocabulary,
    )  # fmt: skip


@kernel()
def _kernel(
    p_logits, p_scheduled_drafts, p_num_scheduled, p_num_drafts, p_invalid, p_sampled,
    vocab_size, width,
    BLOCK_COLUMNS: tl.constexpr, BLOCK_VOCABULARY: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.arange(0, BLOCK_COLUMNS)
    is_column = o_column < width
    p_columns = p_logits + (i_row * width + o_column) * vocab_size
    b_best = tl.full([BLOCK_COLUMNS], float("-inf"), dtype=tl.float32)
    b_target = tl.full([BLOCK_COLUMNS], NO_TOKEN, dtype=tl.int64)
    b_undefined = tl.zeros([BLOCK_COLUMNS], dtype=tl.int32)
    for start in range(0, vocab_size, BLOCK_VOCABULARY):
        o_vocabulary = start + tl.arange(0, BLOCK_VOCABULARY).to(tl.int64)
        is_logit = is_column[:, None] & (o_vocabulary < vocab_size)[None, :]
        b_logits = tl.load(p_columns[:, None] + o_vocabulary[None, :], mask=is_logit, other=float("-inf"))
        # Neither NaN nor infinity is less than infinity.
        is_none = (b_logits < float("inf")) == 0
        b_undefined = tl.maximum(b_undefined, tl.max(is_none.to(tl.int32), axis=1))
        b_logits = tl.where(is_none, float("-inf"), b_logits)
        b_local = tl.max(b_logits, axis=1)
        b_first = tl.min(tl.where(b_logits == b_local[:, None], o_vocabulary[None, :], vocab_size), axis=1)
        b_target = tl.where(b_local > b_best, b_first, b_target)
        b_best = tl.maximum(b_best, b_local)
    b_target = tl.where(b_undefined > 0, NO_TOKEN, b_target)
    is_draft = o_column < tl.load(p_num_drafts + i_row)
    b_draft = tl.load(p_scheduled_drafts + i_row * (width - 1) + o_column, mask=is_draft, other=NO_TOKEN)
    # The first column that does not match; the column after the last draft token never matches.
    b_accepted = tl.min(tl.where((b_draft == b_target) & (b_target != NO_TOKEN), width, o_column), axis=0)
    is_sampled = (tl.load(p_num_scheduled + i_row) > 0) & (tl.load(p_invalid + i_row) <= 0)
    b_sampled = tl.where((o_column <= b_accepted) & is_sampled, b_target, NO_TOKEN)
    tl.store(p_sampled + i_row * width + o_column, b_sampled, mask=is_column)
