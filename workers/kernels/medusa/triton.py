"""Medusa heads: one small model per future position; no KV cache."""

import triton.language as tl

from workers.kernels.arithmetic.triton import draft_hidden
from workers.kernels.drafting.triton import scripted
from workers.kernels.launch.triton import NO_DRAFT, kernel, launch
from workers.kernels.medusa.definition import MedusaHeads

BLOCK = 128


def medusa_heads(a: MedusaHeads) -> None:
    """Launch programs that read nothing for padding rows."""
    num_columns = a.draft_tokens.numel()
    if num_columns:
        launch(_heads_kernel, (-(-num_columns // BLOCK),))(
            a.hidden, a.positions, a.token_index, a.num_scheduled, a.valid, a.state_slot, a.script, a.raw,
            a.draft_tokens,
            num_columns, a.max_model_len, a.num_proposed, a.num_speculative_tokens, BLOCK,
        )  # fmt: skip


@kernel()
def _heads_kernel(
    p_hidden, p_positions, p_token_index, p_num_scheduled, p_valid, p_state_slot, p_script, p_raw, p_draft_tokens,
    num_columns, max_model_len, num_proposed, k,
    BLOCK: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_column = o_column < num_columns
    o_row = o_column // k
    b_head = o_column % k
    is_proposed = is_column & (b_head < num_proposed)
    is_proposed &= tl.load(p_num_scheduled + o_row, mask=is_column, other=0) > 0
    is_valid = is_proposed & (tl.load(p_valid + o_row, mask=is_column, other=0) > 0)
    o_last = tl.load(p_token_index + o_row, mask=is_proposed, other=0)
    b_hidden = tl.load(p_hidden + o_last, mask=is_proposed, other=0)
    b_position = tl.load(p_positions + o_last, mask=is_proposed, other=0) + 2 + b_head
    b_slot = tl.load(p_state_slot + o_row, mask=is_proposed, other=0)
    b_draft = scripted(p_script, b_slot, b_position, is_proposed, max_model_len)
    tl.store(p_raw + o_column, tl.where(is_proposed, draft_hidden(b_hidden, b_head), 0), mask=is_column)
    tl.store(p_draft_tokens + o_column, tl.where(is_valid, b_draft, NO_DRAFT), mask=is_column)
