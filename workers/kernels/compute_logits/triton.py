"""Compute the logits of each row's last token and its draft tokens."""

import triton.language as tl

from workers.kernels.arithmetic.triton import logit
from workers.kernels.compute_logits.definition import ComputeLogits
from workers.kernels.launch.triton import kernel, launch

BLOCK_COLUMNS = 16
BLOCK_VOCABULARY = 128


def compute_logits(a: ComputeLogits) -> None:
    width = 1 + a.num_speculative_tokens
    num_columns = a.num_drafts.numel() * width
    assert a.logits.numel() == num_columns * a.vocab_size
    grid = (-(-num_columns // BLOCK_COLUMNS), -(-a.vocab_size // BLOCK_VOCABULARY))
    launch(_kernel, grid)(
        a.hidden, a.query_start, a.num_scheduled, a.num_drafts, a.logits,
        num_columns, a.hidden.numel(), a.vocab_size,
        width, BLOCK_COLUMNS, BLOCK_VOCABULARY,
    )  # fmt: skip


@kernel()
def _kernel(
    p_hidden, p_query_start, p_num_scheduled, p_num_drafts, p_logits,
    num_columns, num_tokens, vocab_size, width,
    BLOCK_COLUMNS: tl.constexpr, BLOCK_VOCABULARY: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    o_vocabulary = tl.program_id(1).to(tl.int64) * BLOCK_VOCABULARY + tl.arange(0, BLOCK_VOCABULARY)
    is_column = o_column < num_columns
    o_row = o_column // width
    b_drafts = tl.load(p_num_drafts + o_row, mask=is_column, other=0)
    b_end = tl.load(p_query_start + o_row, mask=is_column, other=0)
    b_end += tl.load(p_num_scheduled + o_row, mask=is_column, other=0)
    o_token = b_end - 1 - b_drafts + tl.minimum(o_column % width, b_drafts)
    o_token = tl.minimum(tl.maximum(o_token, 0), num_tokens - 1)
    b_hidden = tl.load(p_hidden + o_token, mask=is_column, other=0)
    b_logits = logit(b_hidden[:, None], o_vocabulary[None, :])
    is_logit = is_column[:, None] & (o_vocabulary < vocab_size)[None, :]
    tl.store(p_logits + o_column[:, None] * vocab_size + o_vocabulary[None, :], b_logits, mask=is_logit)
