"""Add up what block verification leaves of the target's probability, block by block of the vocabulary."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import check_flat, columns_of, kernel, launch
from workers.kernels.probabilities.triton import NEVER, block_odds, draft_odds, line_sums, load_block, scale_of, weight
from workers.kernels.residual_mass.arguments import ResidualMass

TILE = 128
ELEMENTS_PER_WARP = 1024
# Most columns decide nothing: few programs each find that out.
PROGRAMS_PER_COLUMN = 8


def residual_mass(a: ResidualMass) -> None:
    """Set residual to the sums of max(odds * p - q, 0) over blocks, after each number of drafts but none and all.

    Some programs a column, each with its share of the blocks; each weighs its row's drafts again.
    """
    rows = (a.temperature, a.drafts, a.num_drafts, a.point_mass)
    mass = (a.block_max, a.block_sum, a.accept_noise, a.residual)
    arguments = (a.logits, a.draft_logits, a.draft_slots, a.floors, *rows, *mass)
    check_flat(*arguments)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_blocks = triton.cdiv(a.vocab_size, a.block_size)
    assert a.residual.numel() == num_rows * (width - 1) * num_blocks
    assert a.accept_noise.numel() == num_rows * (width - 1)
    if width < 3:
        return
    tile = min(TILE, a.block_size)
    launch(_kernel, (num_rows * (width - 2) * PROGRAMS_PER_COLUMN,))(
        *arguments, num_rows, num_blocks, a.vocab_size, a.logits_stride, a.draft_stride,
        width, columns_of(width), triton.next_power_of_2(num_blocks), a.block_size, tile,
        PROGRAMS_PER_COLUMN,
        num_warps=min(max(a.block_size // ELEMENTS_PER_WARP, 1), 8),
    )  # fmt: skip


@kernel("p_logits", "p_draft_logits", "vocab_size", "logits_stride", "draft_stride")
def _kernel(
    p_logits, p_draft_logits, p_draft_slots, p_floors, p_temperature, p_drafts, p_num_drafts, p_point_mass,
    p_max, p_sum, p_accept, p_residual,
    num_rows, num_blocks, vocab_size,
    logits_stride, draft_stride, width,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    first_block = tl.program_id(0) % PROGRAMS
    column = 1 + (tl.program_id(0) // PROGRAMS) % (width - 2)
    i_row = (tl.program_id(0) // (PROGRAMS * (width - 2))).to(tl.int64)
    temperature = tl.load(p_temperature + i_row)
    num_drafts = tl.load(p_num_drafts + i_row)
    if (temperature > 0) & (column < num_drafts):
        scale = scale_of(temperature)
        proposed_size = tl.where(tl.load(p_point_mass + i_row) == 0, vocab_size, 0)
        usable, _b_draft, b_target_odds, b_draft_odds, _b_undefined, _b_draft_undefined = draft_odds(
            p_logits, p_draft_logits, p_draft_slots, p_floors, p_drafts, p_max, p_sum,
            i_row, num_drafts, tl.where(proposed_size > 0, num_drafts, 0), scale,
            num_rows, vocab_size, num_blocks, logits_stride, draft_stride,
            width, COLUMNS, BLOCKS,
        )  # fmt: skip
        if column < usable:
            o_column = tl.arange(0, COLUMNS)
            b_odds = block_odds(b_target_odds, b_draft_odds, COLUMNS)
            b_noise = tl.load(p_accept + i_row * (width - 1) + o_column, mask=o_column < usable, other=1.0)
            odds, noise = _of(b_odds, o_column, column), _of(b_noise, o_column, column - 1)
            are_all_kept = _of(b_noise, o_column, usable - 1) < _of(b_odds, o_column, usable)
            i_line, i_draft = i_row * width + column, i_row * (width - 1) + column
            p_mass = p_residual + i_draft * num_blocks
            if are_all_kept | (noise >= odds):
                for i_block in range(first_block, num_blocks, PROGRAMS):
                    tl.store(p_mass + i_block, 0.0)
            else:
                maximum, total = line_sums(p_max, p_sum, i_line, vocab_size, scale, num_blocks, BLOCKS)
                offset = num_rows.to(tl.int64) * width * num_blocks
                draft_maximum, draft_total = line_sums(
                    p_max + offset, p_sum + offset, i_draft, proposed_size, scale, num_blocks, BLOCKS
                )
                floor, draft = tl.load(p_floors + i_line), tl.load(p_drafts + i_draft)
                i_proposed = tl.load(p_draft_slots + i_row) * (width - 1) + column
                p_line, p_draft_line = p_logits + i_line * logits_stride, p_draft_logits + i_proposed * draft_stride
                for i_block in range(first_block, num_blocks, PROGRAMS):
                    b_logits = load_block(p_line, i_block, vocab_size, BLOCK, TILE)
                    b_target = odds * weight(b_logits, floor, maximum, scale) * draft_total
                    if proposed_size > 0:
                        b_proposed = load_block(p_draft_line, i_block, vocab_size, BLOCK, TILE)
                        b_left = b_target - weight(b_proposed, NEVER, draft_maximum, scale) * total
                    else:
                        o_tile = i_block * BLOCK + tl.arange(0, BLOCK // TILE) * TILE
                        b_token = o_tile[:, None] + tl.arange(0, TILE)[None, :]
                        b_left = tl.where(b_token == draft, b_target - total, b_target)
                    left = tl.sum(tl.sum(tl.maximum(b_left, 0.0), axis=1), axis=0)
                    tl.store(p_mass + i_block, tl.div_rn(left, total * draft_total))


@triton.jit
def _of(b_values, o_column, column):
    """Return the value of one column."""
    return tl.sum(tl.where(o_column == column, b_values, 0.0), axis=0)
