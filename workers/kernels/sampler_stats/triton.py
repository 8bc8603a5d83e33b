"""Reduce logits to a maximum and sums per vocabulary block: the only pass over all logits."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import can_overlap, kernel, launch, length_unit, let_next_begin, wait_for_others
from workers.kernels.probabilities.triton import NEVER, largest_of, load_block, scale_of
from workers.kernels.sampler_stats.definition import SamplerStats

ELEMENTS_PER_WARP = 1024
# Up to this many programs mostly wait for memory: they load logits before they know whether these are needed.
FEW = 512


def sampler_stats(a: SamplerStats) -> None:
    """Launch one program per block of a row of logits; block and tile size are powers of two."""
    stats = (a.block_max, a.block_sum, a.block_best, a.tile_sum)
    arguments = (a.logits, a.draft_logits, a.draft_slots, a.floors, a.temperature, a.num_drafts, a.point_mass, *stats)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_blocks = triton.cdiv(a.vocab_size, a.block_size)
    num_columns = width + (a.num_speculative_tokens if a.draft_logits.numel() else 0)
    assert a.logits.numel() == num_rows * width * a.logits_stride
    assert a.draft_logits.numel() % max((width - 1) * a.draft_stride, 1) == 0
    assert a.draft_slots.numel() == num_rows
    assert a.tile_sum.numel() == num_rows * width * num_blocks * (a.block_size // a.tile_size)
    are_few, overlaps = num_columns * num_rows * num_blocks <= FEW, can_overlap()
    unit = length_unit(a.vocab_size, a.logits_stride, a.draft_stride)
    per_warp = ELEMENTS_PER_WARP // 2 if are_few else ELEMENTS_PER_WARP
    # A three-dimensional grid: a division to find the row would delay the load by a fifth of a microsecond.
    launch(_kernel, (num_blocks, num_rows, num_columns))(
        *arguments, a.vocab_size // unit, a.logits_stride // unit, a.draft_stride // unit, width,
        a.block_size, a.tile_size, unit, are_few, overlaps,
        num_warps=min(max(a.block_size // per_warp, 1), 16), launch_pdl=overlaps,
    )  # fmt: skip


@kernel("p_logits", "p_draft_logits")
def _kernel(
    p_logits, p_draft_logits, p_draft_slots, p_floors, p_temperature, p_num_drafts, p_point_mass,
    p_max, p_sum, p_best, p_tile_sum,
    vocab_size, logits_stride, draft_stride, width,
    BLOCK: tl.constexpr, TILE: tl.constexpr, UNIT: tl.constexpr, ARE_FEW: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    vocab_size, logits_stride, draft_stride = vocab_size * UNIT, logits_stride * UNIT, draft_stride * UNIT
    i_block, i_row, i_column = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    num_blocks, num_rows = tl.num_programs(0), tl.num_programs(1)
    if i_column < width:
        i_line = (i_row * width + i_column).to(tl.int64)
        i_program = i_line * num_blocks + i_block
        num_drafts, temperature = tl.load(p_num_drafts + i_row), tl.load(p_temperature + i_row)
        floor = tl.load(p_floors + i_line)
        p_line = p_logits + i_line * logits_stride
        if ARE_FEW:
            b_logits = load_block(p_line, i_block * BLOCK, vocab_size, BLOCK, TILE)
        else:
            b_logits = tl.zeros([BLOCK // TILE, TILE], dtype=tl.float32)
        _wait_and_let_next_begin(OVERLAPS)
        if i_column <= num_drafts:
            if not ARE_FEW:
                b_logits = load_block(p_line, i_block * BLOCK, vocab_size, BLOCK, TILE)
            if floor > NEVER:
                # NaN compares as not below, so it stays.
                b_logits = tl.where(b_logits < floor, NEVER, b_logits)
            if temperature > 0:
                maximum, total, b_tiles = _sums(b_logits, temperature)
                tl.store(p_max + i_program, maximum)
                tl.store(p_sum + i_program, total)
                tl.store(p_tile_sum + i_program * (BLOCK // TILE) + tl.arange(0, BLOCK // TILE), b_tiles)
            else:
                # NaN is treated as inf: neither leaves a distribution.
                b_logits = tl.where(b_logits <= float("inf"), b_logits, float("inf"))
                maximum = _largest_of(b_logits)
                o_tile = tl.arange(0, BLOCK // TILE) * TILE
                b_index = o_tile[:, None] + tl.arange(0, TILE)[None, :]
                best = tl.min(tl.where(b_logits == maximum, b_index, BLOCK))
                undefined = maximum == float("inf")
                tl.store(p_max + i_program, tl.where(undefined, float("nan"), maximum))
                tl.store(p_best + i_program, i_block * BLOCK + tl.where(undefined, 0, best).to(tl.int64))
    else:
        i_column -= width
        i_program = (num_rows * width + i_row * (width - 1) + i_column).to(tl.int64) * num_blocks + i_block
        num_drafts, temperature = tl.load(p_num_drafts + i_row), tl.load(p_temperature + i_row)
        slot = tl.load(p_draft_slots + i_row)
        is_read = (i_column < num_drafts) & (tl.load(p_point_mass + i_row) == 0) & (slot >= 0)
        if is_read & (temperature > 0):
            p_line = p_draft_logits + (slot * (width - 1) + i_column) * draft_stride
            b_logits = load_block(p_line, i_block * BLOCK, vocab_size, BLOCK, TILE)
            _wait_and_let_next_begin(OVERLAPS)
            maximum, total, b_tiles = _sums(b_logits, temperature)
            tl.store(p_max + i_program, maximum)
            tl.store(p_sum + i_program, total)
        else:
            _wait_and_let_next_begin(OVERLAPS)


@triton.jit
def _wait_and_let_next_begin(OVERLAPS: tl.constexpr):
    """Wait for preceding kernels, then allow `draw_noise` to overlap.

    Nothing reads the noise that it overwrites any more.
    """
    wait_for_others(OVERLAPS)
    let_next_begin(OVERLAPS)


@triton.jit
def _largest_of(b_logits):
    """Return the largest logit of a block: first per thread, then across threads as integers."""
    NUM_TILES: tl.constexpr = b_logits.shape[0]
    TILE: tl.constexpr = b_logits.shape[1]
    PIECE: tl.constexpr = min(TILE, 4)
    b_pieces = tl.max(tl.reshape(b_logits, [NUM_TILES, TILE // PIECE, PIECE]), axis=2)
    return largest_of(b_pieces, None)


@triton.jit
def _sums(b_logits, temperature):
    """Return a block's maximum, and the sums of its weights relative to it: total and by tile."""
    maximum = _largest_of(b_logits)
    finite = tl.where((maximum > NEVER) & (maximum < float("inf")), maximum, 0.0)
    b_tiles = tl.sum(tl.exp2((b_logits - finite) * scale_of(temperature)), axis=1)
    total = tl.sum(b_tiles, axis=0)
    # A maximum ignores NaN, a sum does not.
    undefined = (total < float("inf")) == 0
    maximum = tl.where(undefined, float("nan"), maximum)
    return maximum, tl.where(undefined, 0.0, total), tl.where(undefined, 0.0, b_tiles)
