"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import check_flat, launch
from workers.kernels.probabilities.triton import NEVER, block_odds, draft_odds, line_sums, load_block, scale_of, weight
from workers.kernels.residual_mass.arguments import ResidualMass

TILE = 128
ELEMENTS_PER_WARP = 1024


def residual_mass(a: ResidualMass) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    One program a block of a column; each weighs its row's drafts again.
    """
    rows = (a.temperature, a.drafts, a.num_drafts, a.point_mass)
    arguments = (a.logits, a.draft_logits, a.draft_slots, a.floors, *rows, a.block_max, a.block_sum, a.residual)
    check_flat(*arguments)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_blocks = triton.cdiv(a.vocab_size, a.block_size)
    assert a.residual.numel() == num_rows * (width - 1) * num_blocks
    if width < 3:
        return
    tile = min(TILE, a.block_size)
    launch(_kernel, (num_rows * (width - 2) * num_blocks,))(
        *arguments, num_rows, num_blocks, a.vocab_size, a.logits_stride, a.draft_stride,
        width, triton.next_power_of_2(width), triton.next_power_of_2(num_blocks), a.block_size, tile,
        num_warps=min(max(a.block_size // ELEMENTS_PER_WARP, 1), 8),
    )  # fmt: skip


@triton.jit(do_not_specialize=["num_rows", "num_blocks"])
def _kernel(
    p_logits, p_draft_logits, p_draft_slots, p_floors, p_temperature, p_drafts, p_num_drafts, p_point_mass,
    p_max, p_sum, p_residual,
    num_rows, num_blocks, vocab_size,
    logits_stride, draft_stride,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    i_block = tl.program_id(0) % num_blocks
    column = 1 + (tl.program_id(0) // num_blocks) % (WIDTH - 2)
    i_row = (tl.program_id(0) // (num_blocks * (WIDTH - 2))).to(tl.int64)
    temperature = tl.load(p_temperature + i_row)
    num_drafts = tl.load(p_num_drafts + i_row)
    if (temperature > 0) & (column < num_drafts):
        scale = scale_of(temperature)
        proposed_size = tl.where(tl.load(p_point_mass + i_row) == 0, vocab_size, 0)
        usable, _b_draft, b_target_odds, b_draft_odds, _b_undefined, _b_draft_undefined = draft_odds(
            p_logits, p_draft_logits, p_draft_slots, p_floors, p_drafts, p_max, p_sum,
            i_row, num_drafts, tl.where(proposed_size > 0, num_drafts, 0), scale,
            num_rows, vocab_size, num_blocks, logits_stride, draft_stride,
            WIDTH, COLUMNS, BLOCKS,
        )  # fmt: skip
        if column < usable:
            o_column = tl.arange(0, COLUMNS)
            b_odds = block_odds(b_target_odds, b_draft_odds, WIDTH, COLUMNS)
            odds = tl.sum(tl.where(o_column == column, b_odds, 0.0), axis=0)
            i_line, i_draft = i_row * WIDTH + column, i_row * (WIDTH - 1) + column
            maximum, total = line_sums(p_max, p_sum, i_line, vocab_size, scale, num_blocks, BLOCKS)
            offset = num_rows.to(tl.int64) * WIDTH * num_blocks
            draft_maximum, draft_total = line_sums(
                p_max + offset, p_sum + offset, i_draft, proposed_size, scale, num_blocks, BLOCKS
            )
            b_logits = load_block(p_logits + i_line * logits_stride, i_block, vocab_size, BLOCK, TILE)
            b_target = odds * weight(b_logits, tl.load(p_floors + i_line), maximum, scale) * draft_total
            if proposed_size > 0:
                i_proposed = tl.load(p_draft_slots + i_row) * (WIDTH - 1) + column
                b_proposed = load_block(p_draft_logits + i_proposed * draft_stride, i_block, vocab_size, BLOCK, TILE)
                b_left = b_target - weight(b_proposed, NEVER, draft_maximum, scale) * total
            else:
                o_tile = i_block * BLOCK + tl.arange(0, BLOCK // TILE) * TILE
                b_token = o_tile[:, None] + tl.arange(0, TILE)[None, :]
                b_left = tl.where(b_token == tl.load(p_drafts + i_draft), b_target - total, b_target)
            mass = tl.div_rn(tl.sum(tl.sum(tl.maximum(b_left, 0.0), axis=1), axis=0), total * draft_total)
            tl.store(p_residual + i_draft * num_blocks + i_block, mass)
