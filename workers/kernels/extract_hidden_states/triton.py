"""Hidden-state extraction: write the target's hidden states to a cache for a consumer."""

import triton.language as tl

from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates
from workers.kernels.launch.triton import NO_DRAFT, PAD_SLOT, kernel, launch

BLOCK = 128


def extract_hidden_states(a: ExtractHiddenStates) -> None:
    num_tokens, num_columns = a.hidden.numel(), a.draft_tokens.numel()
    launch(_write_kernel, (-(-num_tokens // BLOCK),))(a.hidden, a.slots, a.drafter_kv, num_tokens, BLOCK)
    if num_columns:
        launch(_propose_kernel, (-(-num_columns // BLOCK),))(
            a.next_tokens, a.valid, a.draft_tokens, num_columns, a.num_proposed, a.num_speculative_tokens, BLOCK
        )


@kernel()
def _write_kernel(p_hidden, p_slots, p_kv, num_tokens, BLOCK: tl.constexpr):
    o_token = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_token = o_token < num_tokens
    o_slot = tl.load(p_slots + o_token, mask=is_token, other=PAD_SLOT)
    tl.store(p_kv + o_slot, tl.load(p_hidden + o_token, mask=is_token, other=0), mask=o_slot >= 0)


@kernel()
def _propose_kernel(p_next, p_valid, p_draft_tokens, num_columns, num_proposed, k, BLOCK: tl.constexpr):
    o_column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_column = o_column < num_columns
    o_row = o_column // k
    is_proposed = is_column & (o_column % k < num_proposed)
    is_proposed &= tl.load(p_valid + o_row, mask=is_column, other=0) > 0
    tl.store(p_draft_tokens + o_column, tl.load(p_next + o_row, mask=is_proposed, other=NO_DRAFT), mask=is_column)
