"""Limit of a drafter with fewer positions than the target: no slots or drafts past it."""

import triton.language as tl

from workers.kernels.drafter_limit.definition import LimitDrafts, LimitSlots
from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch

BLOCK = 128


def limit_slots(a: LimitSlots) -> None:
    num_tokens = a.positions.numel()
    grid = (-(-num_tokens // BLOCK),)
    launch(_slots_kernel, grid)(a.positions, a.slots, a.drafter_slots, num_tokens, a.drafter_max_len, BLOCK)


def limit_drafts(a: LimitDrafts) -> None:
    num_columns = a.draft_tokens.numel()
    if num_columns:
        launch(_drafts_kernel, (-(-num_columns // BLOCK),))(
            a.positions, a.token_index, a.draft_tokens, num_columns, a.num_proposed, a.drafter_max_len,
            a.num_speculative_tokens,
            BLOCK,
        )  # fmt: skip


@kernel()
def _slots_kernel(p_positions, p_slots, p_drafter_slots, num_tokens, drafter_max_len, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    fits = is_token & (tl.load(p_positions + o_token, mask=is_token, other=0) < drafter_max_len)
    tl.store(p_drafter_slots + o_token, tl.load(p_slots + o_token, mask=fits, other=PAD_SLOT), mask=is_token)


@kernel()
def _drafts_kernel(
    p_positions, p_token_index, p_draft_tokens, num_columns, num_proposed, drafter_max_len, k,
    BLOCK: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_column = o_column < num_columns
    o_last = tl.load(p_token_index + o_column // k, mask=is_column, other=0)
    b_last = tl.load(p_positions + o_last, mask=is_column, other=0)
    is_past = is_column & (b_last + 2 + num_proposed > drafter_max_len)
    tl.store(p_draft_tokens + o_column, tl.full([BLOCK], NO_DRAFT, dtype=tl.int64), mask=is_past)
