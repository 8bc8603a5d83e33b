"""A drafter with fewer positions than the target: where its cache ends, and who gets no drafts any more."""

import triton
import triton.language as tl

from workers.kernels.triton.launch import launch
from workers.kernels.triton.signature import NO_DRAFT, PAD_SLOT, In, InOut, Out, check_flat

BLOCK = 128


def limit_slots(positions: In, slots: In, drafter_slots: Out, drafter_max_len: int) -> None:
    """Give tokens past the drafter's last position no slot; all arrays are [num_tokens]."""
    check_flat(positions, slots, drafter_slots)
    num_tokens = positions.numel()
    grid = (-(-num_tokens // BLOCK),)
    launch(_slots_kernel, grid)(positions, slots, drafter_slots, num_tokens, drafter_max_len, BLOCK)


def limit_drafts(
    positions: In,
    token_index: In,
    draft_tokens: InOut,
    num_speculative_tokens: int,
    num_proposed: int,
    drafter_max_len: int,
) -> None:
    """Take its drafts from every row whose next token and drafts do not all have a position in the drafter.

    Shapes: as in the definition.
    """
    check_flat(positions, token_index, draft_tokens)
    num_columns = draft_tokens.numel()
    if num_columns:
        launch(_drafts_kernel, (-(-num_columns // BLOCK),))(
            positions, token_index, draft_tokens, num_columns, num_proposed, drafter_max_len, num_speculative_tokens,
            BLOCK,
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_tokens", "drafter_max_len"])
def _slots_kernel(p_positions, p_slots, p_drafter_slots, num_tokens, drafter_max_len, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    fits = is_token & (tl.load(p_positions + o_token, mask=is_token, other=0) < drafter_max_len)
    tl.store(p_drafter_slots + o_token, tl.load(p_slots + o_token, mask=fits, other=PAD_SLOT), mask=is_token)


@triton.jit(do_not_specialize=["num_columns", "num_proposed", "drafter_max_len"])
def _drafts_kernel(
    p_positions, p_token_index, p_draft_tokens, num_columns, num_proposed, drafter_max_len,
    K: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_column = o_column < num_columns
    o_last = tl.load(p_token_index + o_column // K, mask=is_column, other=0)
    b_last = tl.load(p_positions + o_last, mask=is_column, other=0)
    is_past = is_column & (b_last + 2 + num_proposed > drafter_max_len)
    tl.store(p_draft_tokens + o_column, tl.full([BLOCK], NO_DRAFT, dtype=tl.int64), mask=is_past)
