"""Corrupt logits (NaN, inf) or draft tokens (invalid ids), for trace events."""

import triton.language as tl

from workers.kernels.launch.triton import kernel, launch
from workers.kernels.spoil_logits.definition import SpoilLogits, SpoilOneDraft, SpoilOneLogit

BLOCK_LOGITS = 1024


def spoil_logits(a: SpoilLogits) -> None:
    grid = (a.rows.numel(), -(-a.num_logits // BLOCK_LOGITS))
    launch(_spoil_kernel, grid)(a.rows, a.logits, a.num_logits, BLOCK_LOGITS)


def spoil_one_logit(a: SpoilOneLogit) -> None:
    assert 0 <= a.place < a.logits.numel()
    launch(_one_logit_kernel, (1,))(a.logits, a.place, a.is_infinite)


def spoil_one_draft(a: SpoilOneDraft) -> None:
    assert 0 <= a.place < a.draft_tokens.numel()
    launch(_one_draft_kernel, (1,))(a.draft_tokens, a.place, a.token)


@kernel()
def _one_logit_kernel(p_logits, place, is_infinite):
    value = tl.where(is_infinite > 0, float("inf"), float("nan"))
    tl.store(p_logits + place, value)


@kernel()
def _one_draft_kernel(p_drafts, place, token):
    tl.store(p_drafts + place, token)


@kernel()
def _spoil_kernel(p_rows, p_logits, num_logits, BLOCK: tl.constexpr):
    o_logit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    p_row = p_logits + tl.load(p_rows + tl.program_id(0)) * num_logits
    tl.store(p_row + o_logit, tl.full([BLOCK], float("nan"), dtype=tl.float32), mask=o_logit < num_logits)
