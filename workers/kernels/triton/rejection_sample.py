"""Verify drafts against the target model."""

import triton
import triton.language as tl

from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import NO_TOKEN, In, Out, check_flat

BLOCK_VOCABULARY_MAX = 1024


def rejection_sample(
    logits: In,
    scheduled_drafts: In,
    num_scheduled: In,
    num_drafts: In,
    invalid: In,
    sampled: Out,
    num_speculative_tokens: int,
    vocab_size: int,
) -> None:
    """Emit the accepted drafts of each row and the target's own token after them: recovered, or bonus.

    Shapes: logits [num_rows * (1 + K) * V]; scheduled_drafts [num_rows * K]; num_scheduled, num_drafts, invalid
    [num_rows]; sampled [num_rows * (1 + K)]. Greedy: a draft is accepted iff it is the target's argmax, lowest index
    first; NO_DRAFT never is. Valid tokens are a contiguous prefix, the rest is NO_TOKEN. Padding rows, and rows
    marked invalid, have none. A column without a largest logit (one is NaN, or all are -inf) has no token: the row
    ends before it.
    Source: Leviathan et al., arXiv 2211.17192, at temperature 0; vLLM PR #37238.
    """
    check_flat(logits, scheduled_drafts, num_scheduled, num_drafts, invalid, sampled)
    width, num_rows = 1 + num_speculative_tokens, num_drafts.numel()
    assert logits.numel() == num_rows * width * vocab_size
    assert sampled.numel() == num_rows * width
    block_columns = 1 << num_speculative_tokens.bit_length()
    block_vocabulary = min(1 << (vocab_size - 1).bit_length(), BLOCK_VOCABULARY_MAX)
    launch(_kernel, (num_rows,))(
        logits, scheduled_drafts, num_scheduled, num_drafts, invalid, sampled,
        vocab_size,
        width, block_columns, block_vocabulary,
    )  # fmt: skip


@triton.jit(do_not_specialize=["vocab_size"])
def _kernel(
    p_logits, p_scheduled_drafts, p_num_scheduled, p_num_drafts, p_invalid, p_sampled,
    vocab_size,
    WIDTH: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_VOCABULARY: tl.constexpr,
):  # fmt: skip
    i_row = tl.program_id(0).to(tl.int64)
    o_column = tl.arange(0, BLOCK_COLUMNS)
    is_column = o_column < WIDTH
    p_columns = p_logits + (i_row * WIDTH + o_column) * vocab_size
    b_best = tl.full([BLOCK_COLUMNS], float("-inf"), dtype=tl.float32)
    b_target = tl.full([BLOCK_COLUMNS], NO_TOKEN, dtype=tl.int64)
    b_undefined = tl.zeros([BLOCK_COLUMNS], dtype=tl.int32)
    for start in range(0, vocab_size, BLOCK_VOCABULARY):
        o_vocabulary = start + tl.arange(0, BLOCK_VOCABULARY).to(tl.int64)
        is_logit = is_column[:, None] & (o_vocabulary < vocab_size)[None, :]
        b_logits = tl.load(p_columns[:, None] + o_vocabulary[None, :], mask=is_logit, other=float("-inf"))
        is_nan = b_logits != b_logits  # noqa: PLR0124
        b_undefined = tl.maximum(b_undefined, tl.max(is_nan.to(tl.int32), axis=1))
        b_logits = tl.where(is_nan, float("-inf"), b_logits)
        b_local = tl.max(b_logits, axis=1)
        b_first = tl.min(tl.where(b_logits == b_local[:, None], o_vocabulary[None, :], vocab_size), axis=1)
        b_target = tl.where(b_local > b_best, b_first, b_target)
        b_best = tl.maximum(b_best, b_local)
    b_target = tl.where(b_undefined > 0, NO_TOKEN, b_target)
    is_draft = o_column < tl.load(p_num_drafts + i_row)
    b_draft = tl.load(p_scheduled_drafts + i_row * (WIDTH - 1) + o_column, mask=is_draft, other=NO_TOKEN)
    # The first column that does not match; the column after the last draft never does.
    b_accepted = tl.min(tl.where((b_draft == b_target) & (b_target != NO_TOKEN), WIDTH, o_column), axis=0)
    is_sampled = (tl.load(p_num_scheduled + i_row) > 0) & (tl.load(p_invalid + i_row) <= 0)
    b_sampled = tl.where((o_column <= b_accepted) & is_sampled, b_target, NO_TOKEN)
    tl.store(p_sampled + i_row * WIDTH + o_column, b_sampled, mask=is_column)
