"""Sum the residual max(r * p - q, 0) per vocabulary block, for block verification."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import (
    NO_TOKEN,
    can_overlap,
    kernel,
    launch,
    length_unit,
    let_next_begin,
    padded_columns,
    wait_for_others,
)
from workers.kernels.probabilities.triton import (
    NEVER,
    column_value,
    draft_logits,
    draft_probabilities,
    joint_ratios,
    load_block,
    scale_of,
    weight,
)
from workers.kernels.residual_mass.definition import ResidualMass

TILE = 128
ELEMENTS_PER_WARP = 1024
# A block is read in pieces of this size: larger pieces need too many registers for enough programs to run at once.
PIECE = 4096
# Most columns need no sum, so a few programs per row are enough.
PROGRAMS = 16
# A vocabulary up to SMALL needs only one program per row; all such sizes share a kernel, which reads pieces of
# SMALL_PIECE.
SMALL, SMALL_PIECE, COLUMNS_MIN, BLOCKS_MIN = 4096, 256, 16, 32
# From this many blocks on, block sums usually bound the residual well enough.
BLOCKS_TELLING = tl.constexpr(8)
# Margin for the rounding of sums.
MARGIN = tl.constexpr(1e-5)


def residual_mass(a: ResidualMass) -> None:
    """Launch several programs per row, each for some vocabulary blocks.

    Each recomputes the joint ratios of the draft tokens.
    """
    rows = (a.temperature, a.drafts, a.num_drafts, a.point_mass)
    mass = (a.block_max, a.block_sum, a.accept_noise, a.residual)
    arguments = (a.logits, a.draft_logits, a.draft_slots, a.floors, *rows, *mass)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_blocks = triton.cdiv(a.vocab_size, a.block_size)
    assert a.residual.numel() == num_rows * (width - 1) * num_blocks
    assert a.accept_noise.numel() == num_rows * (width - 1)
    if width < 3:
        return
    columns, blocks, overlaps = padded_columns(width), triton.next_power_of_2(num_blocks), can_overlap()
    block, piece, programs = a.block_size, min(PIECE, a.block_size), PROGRAMS
    if a.vocab_size <= SMALL:
        columns, blocks = max(columns, COLUMNS_MIN), max(blocks, BLOCKS_MIN)
        block, piece, programs = 0, SMALL_PIECE, 1
    unit = length_unit(a.vocab_size, a.logits_stride, a.draft_stride)
    launch(_kernel, (num_rows * programs,))(
        *arguments, num_rows, num_blocks, a.vocab_size // unit, a.logits_stride // unit, a.draft_stride // unit,
        width, a.block_size, columns, blocks, block, piece, min(TILE, piece),
        programs, unit, overlaps,
        num_warps=max(piece // ELEMENTS_PER_WARP, 1), launch_pdl=overlaps,
    )  # fmt: skip


@kernel("p_logits", "p_draft_logits")
def _kernel(
    p_logits, p_draft_logits, p_draft_slots, p_floors, p_temperature, p_drafts, p_num_drafts, p_point_mass,
    p_max, p_sum, p_accept, p_residual,
    num_rows, num_blocks, vocab_size,
    logits_stride, draft_stride, width, block_size,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, PIECE: tl.constexpr, TILE: tl.constexpr,
    PROGRAMS: tl.constexpr, UNIT: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    let_next_begin(OVERLAPS)
    vocab_size, logits_stride, draft_stride = vocab_size * UNIT, logits_stride * UNIT, draft_stride * UNIT
    if BLOCK > 0:
        block_size = BLOCK
    first_block = tl.program_id(0) % PROGRAMS
    # Last rows first: some of their logits are still in the cache.
    i_row, o_column = (num_rows - 1 - tl.program_id(0) // PROGRAMS).to(tl.int64), tl.arange(0, COLUMNS)
    temperature, num_drafts = tl.load(p_temperature + i_row), tl.load(p_num_drafts + i_row)
    slot, is_certain = tl.load(p_draft_slots + i_row), tl.load(p_point_mass + i_row) != 0
    b_draft = tl.load(p_drafts + i_row * (width - 1) + o_column, mask=o_column < width - 1, other=NO_TOKEN)
    if (temperature > 0) & (num_drafts > 1):
        scale = scale_of(temperature)
        num_proposed = tl.where(is_certain, 0, num_drafts)
        is_known, is_read, b_floor, b_logit, b_proposed = draft_logits(
            p_logits, p_draft_logits, p_floors, i_row, slot, b_draft, num_drafts, num_proposed, vocab_size,
            logits_stride, draft_stride, width, COLUMNS, OVERLAPS,
        )  # fmt: skip
        (
            usable, _b_noise, b_scaled_p, b_scaled_q, _b_undefined, _b_draft_undefined,
            b_mass, b_maximum, b_total, b_draft_mass, b_draft_maximum, b_draft_total,
        ) = draft_probabilities(
            p_max, p_sum, p_accept, is_known, is_read, b_floor, b_logit, b_proposed,
            i_row, num_drafts, num_proposed, scale, num_rows, num_blocks, width, COLUMNS, BLOCKS,
        )  # fmt: skip
        # The noise of the draft token before a column.
        b_is_column = (o_column > 0) & (o_column <= usable)
        b_noise = tl.load(p_accept + i_row * (width - 1) + o_column - 1, mask=b_is_column, other=1.0)
        b_joint_ratios = joint_ratios(b_scaled_p, b_scaled_q, COLUMNS)
        are_all_kept = column_value((b_noise < b_joint_ratios).to(tl.int32), o_column, usable) > 0
        b_known, b_residual = (b_noise >= b_joint_ratios) | are_all_kept, 0 * b_joint_ratios
        if num_blocks >= BLOCKS_TELLING:
            # The residual is at least that of whole blocks, and at most what the draft token of the column leaves.
            b_least = tl.maximum(
                (b_joint_ratios * b_draft_total)[:, None] * b_mass - b_total[:, None] * b_draft_mass, 0.0
            )
            b_whole = b_total * b_draft_total
            b_least = tl.div_rn(tl.sum(b_least, axis=1), b_whole) - MARGIN
            b_most = b_joint_ratios - tl.div_rn(tl.minimum(b_joint_ratios * b_scaled_p, b_scaled_q), b_whole) + MARGIN
            b_kept = (b_known == 0) & (is_certain == 0) & (b_noise * (b_least + 1 - b_joint_ratios) < b_least)
            b_residual = tl.where(b_kept, b_least, 0.0)
            b_known |= b_kept | ((is_certain == 0) & (b_noise * (b_most + 1 - b_joint_ratios) >= b_most))
            b_known |= o_column < tl.max(tl.where(b_kept & (o_column < usable), o_column, 0), axis=0)
        b_known = tl.where(o_column < usable, b_known.to(tl.int32), 1)
        p_mass = p_residual + i_row * (width - 1) * num_blocks
        for i_block in range(first_block, num_blocks, PROGRAMS):
            is_written = b_is_column & (o_column < usable) & (b_known > 0)
            tl.store(p_mass + o_column * num_blocks + i_block, tl.where(i_block == 0, b_residual, 0.0), mask=is_written)
        for column in range(1, usable):
            if column_value(b_known, o_column, column) == 0:
                i_line, i_proposed = i_row * width + column, slot * (width - 1) + column
                certain = tl.where(is_certain, column_value(b_draft, o_column, column), -1)
                joint_ratio, floor = column_value(b_joint_ratios, o_column, column), tl.load(p_floors + i_line)
                maximum, total = column_value(b_maximum, o_column, column), column_value(b_total, o_column, column)
                draft_maximum, draft_total = (
                    column_value(b_draft_maximum, o_column, column),
                    column_value(b_draft_total, o_column, column),
                )
                for i_block in range(first_block, num_blocks, PROGRAMS):
                    left, end = 0.0, tl.minimum((i_block + 1) * block_size, vocab_size)
                    for first in range(i_block * block_size, end, PIECE):
                        left += _residual_of_piece(
                            p_logits + i_line * logits_stride, p_draft_logits + i_proposed * draft_stride, first, end,
                            certain, joint_ratio * draft_total, floor, maximum, total, draft_maximum, scale,
                            PIECE, TILE,
                        )  # fmt: skip
                    tl.store(p_mass + column * num_blocks + i_block, tl.div_rn(left, total * draft_total))
    else:
        wait_for_others(OVERLAPS)


@triton.jit
def _residual_of_piece(
    p_line, p_draft_line, first, end, certain, factor, floor, maximum, total, draft_maximum, scale,
    PIECE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Return the residual sum of a piece of the vocabulary.

    For a `certain` draft token there are no draft logits.
    """
    b_target = factor * weight(load_block(p_line, first, end, PIECE, TILE), floor, maximum, scale)
    if certain >= 0:
        o_tile = first + tl.arange(0, PIECE // TILE) * TILE
        b_token = o_tile[:, None] + tl.arange(0, TILE)[None, :]
        b_residual = tl.where(b_token == certain, b_target - total, b_target)
    else:
        b_proposed = load_block(p_draft_line, first, end, PIECE, TILE)
        b_residual = b_target - weight(b_proposed, NEVER, draft_maximum, scale) * total
    return tl.sum(tl.sum(tl.maximum(b_residual, 0.0), axis=1), axis=0)
