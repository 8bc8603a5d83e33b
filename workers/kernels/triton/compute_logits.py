"""Compute the logits of the positions that are to be sampled."""

import triton
import triton.language as tl

from workers.kernels.triton.arithmetic import logit
from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import In, Out, check_flat

BLOCK_COLUMNS = 16
BLOCK_VOCABULARY = 128


def compute_logits(
    hidden: In,
    query_start: In,
    num_scheduled: In,
    num_drafts: In,
    logits: Out,
    num_speculative_tokens: int,
    vocab_size: int,
) -> None:
    """Write the logits of the last 1 + d tokens of each row.

    Shapes: hidden [num_tokens] uint64; query_start, num_scheduled, num_drafts [num_rows];
    logits [num_rows * (1 + K) * V] float32, integers below 2^24 and so exact. Columns past d repeat column d.
    """
    check_flat(hidden, query_start, num_scheduled, num_drafts, logits)
    width = 1 + num_speculative_tokens
    num_columns = num_drafts.numel() * width
    assert logits.numel() == num_columns * vocab_size
    grid = (-(-num_columns // BLOCK_COLUMNS), -(-vocab_size // BLOCK_VOCABULARY))
    launch(_kernel, grid)(
        hidden, query_start, num_scheduled, num_drafts, logits,
        num_columns, hidden.numel(), vocab_size,
        width, BLOCK_COLUMNS, BLOCK_VOCABULARY,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_columns", "num_tokens", "vocab_size"])
def _kernel(
    p_hidden, p_query_start, p_num_scheduled, p_num_drafts, p_logits,
    num_columns, num_tokens, vocab_size,
    WIDTH: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_VOCABULARY: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    o_vocabulary = tl.program_id(1).to(tl.int64) * BLOCK_VOCABULARY + tl.arange(0, BLOCK_VOCABULARY)
    is_column = o_column < num_columns
    o_row = o_column // WIDTH
    b_drafts = tl.load(p_num_drafts + o_row, mask=is_column, other=0)
    b_end = tl.load(p_query_start + o_row, mask=is_column, other=0)
    b_end += tl.load(p_num_scheduled + o_row, mask=is_column, other=0)
    o_token = b_end - 1 - b_drafts + tl.minimum(o_column % WIDTH, b_drafts)
    o_token = tl.minimum(tl.maximum(o_token, 0), num_tokens - 1)
    b_hidden = tl.load(p_hidden + o_token, mask=is_column, other=0)
    b_logits = logit(b_hidden[:, None], o_vocabulary[None, :])
    is_logit = is_column[:, None] & (o_vocabulary < vocab_size)[None, :]
    tl.store(p_logits + o_column[:, None] * vocab_size + o_vocabulary[None, :], b_logits, mask=is_logit)
