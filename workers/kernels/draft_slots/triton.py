"""Slot mapping of draft tokens: KV-cache slots of a drafter that runs on its own output."""

import triton.language as tl

from workers.kernels.draft_slots.definition import DraftSlots
from workers.kernels.launch.triton import PAD_BLOCK, PAD_SLOT, kernel, launch

BLOCK = 128


def draft_slots(a: DraftSlots) -> None:
    num_columns = a.draft_slots.numel()
    if num_columns:
        launch(_kernel, (-(-num_columns // BLOCK),))(
            a.positions, a.token_index, a.num_scheduled, a.block_table, a.draft_slots,
            num_columns, a.max_blocks, a.max_model_len, a.num_proposed,
            a.block_size, a.num_speculative_tokens, BLOCK,
        )  # fmt: skip


@kernel()
def _kernel(
    p_positions, p_token_index, p_num_scheduled, p_block_table, p_draft_slots,
    num_columns, max_blocks, max_model_len, num_proposed, block_size, k,
    BLOCK: tl.constexpr,
):  # fmt: skip
    o_column = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_column = o_column < num_columns
    o_row, b_draft = o_column // k, o_column % k
    is_fed = is_column & (b_draft + 1 < num_proposed)
    is_fed = is_fed & (tl.load(p_num_scheduled + o_row, mask=is_column, other=0) > 0)
    o_last = tl.load(p_token_index + o_row, mask=is_fed, other=0)
    b_position = tl.load(p_positions + o_last, mask=is_fed, other=0) + 1 + b_draft
    is_inside = is_fed & (b_position < max_model_len)
    o_entry = o_row * max_blocks + b_position // block_size
    b_block = tl.load(p_block_table + o_entry, mask=is_inside, other=PAD_BLOCK)
    b_slot = tl.where(b_block >= 0, b_block * block_size + b_position % block_size, PAD_SLOT)
    tl.store(p_draft_slots + o_column, b_slot, mask=is_column)
