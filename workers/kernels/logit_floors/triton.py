"""Find the lowest logit that top-k and top-p keep, line by line."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from workers.kernels.floor_search.triton import (
    LEAST_MASS,
    floor_key,
    floor_key_aside,
    floor_key_of_intervals,
    floor_key_of_line,
)
from workers.kernels.launch.triton import can_overlap, kernel, launch, let_next_begin, wait_for_others
from workers.kernels.logit_blocks.triton import NEIGHBOURS, block, fetch, set_aside
from workers.kernels.logit_floors import definition as shared
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_keys.triton import highest_key, key_of, largest_key, logit_of, lowest_key
from workers.kernels.logit_samples.triton import LEAST, interval, sample
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

# Logits that are read in one piece.
TILE_SIZE = 64
BLOCK_WARPS = 4
# The steps of a search that a bound needs: for its sign, its exponent and the first bits of its fraction.
STEPS_OF_BOUND = tl.constexpr(8)
# Where few logits are set aside, half of them or a quarter are searched.
FEWER, FEWEST = tl.constexpr(2), tl.constexpr(4)
# Share of the room that a sample aims at: with six deviations of a block and of the sample, half of the room.
AIMED = 0.34
# Share of the room that an interval aims at.
WIDE = 0.55
# Warps of the program that reads a sample.
SAMPLE_WARPS = 8
# Limits of a thread's registers, so that enough programs run at once.
SAMPLE_REGISTERS, BLOCK_REGISTERS = 64, 80
# A sample tells where the floor is if its mass is that of equally heavy logits that are at least this part of it.
SPREAD = tl.constexpr(1 / 64)
# The floor of a flat line is far below the largest logits: it has this many times as many above it.
FAR_BELOW = tl.constexpr(3)


@dataclass(frozen=True, slots=True)
class Cut:
    """Partition of a line: whole if it is short, otherwise blocks, with a sample that bounds what is set aside."""

    short: int = shared.SHORT_LINE
    block: int = shared.BLOCK_SIZE
    sample: int = 4096
    # Consecutive logits of the sample.
    group: int = 32
    # Samples where the floor is not among the largest.
    samples: int = 4
    candidates: int = shared.CANDIDATES_MAX
    line_warps: int = 8
    floor_warps: int = 4


def logit_floors(a: LogitFloors) -> None:
    find_floors(a, Cut())


def find_floors(a: LogitFloors, cut: Cut) -> None:
    """Set floors to the lowest logit of each line that stays.

    A sample of a line gives a logit that its floor is hardly below or, of a flat line, an interval around it. Programs
    of blocks read the line once, add it up, and set aside the few logits that are not below that one, or in the
    interval; these are searched for the floor. Where it is not among them, or they are more than there is room for,
    the line is read again for other intervals, and at last searched itself.
    """
    limits = (a.temperature, a.top_k, a.top_p, a.num_drafts)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_lines = num_rows * width
    assert a.logits.numel() == num_lines * a.logits_stride
    assert a.floors.numel() == num_lines
    if a.vocab_size <= cut.short:
        # One of two sizes, for each makes a kernel of its own.
        length = cut.short // 8 if a.vocab_size <= cut.short // 8 else cut.short
        launch(_lines_kernel, (num_lines,))(
            a.logits, *limits, a.floors,
            a.vocab_size, a.logits_stride, width,
            length,
            num_warps=cut.line_warps,
        )  # fmt: skip
        return
    tiles = cut.block // TILE_SIZE
    num_tiles = triton.cdiv(a.vocab_size, TILE_SIZE)
    num_blocks = triton.cdiv(num_tiles, tiles)
    room = cut.candidates // num_blocks
    assert room >= FEWEST, f"{num_blocks} blocks of {a.vocab_size} logits set aside {cut.candidates} together"
    bounds, maxima, sums, above, counts, candidates = _split(a.workspace, num_lines, num_blocks, room)
    # The room of a block overflows only if its count is six deviations above its mean.
    aimed = int(min(cut.candidates * AIMED, a.vocab_size / 8, num_blocks * ((room + 9) ** 0.5 - 3) ** 2))
    wide = int(min(cut.candidates * WIDE, a.vocab_size / 8))
    overlaps = can_overlap()
    launch(_bounds_kernel, (num_lines,))(
        a.logits, *limits, bounds,
        a.vocab_size, a.logits_stride, width, aimed, wide,
        cut.sample, cut.group, cut.samples, overlaps,
        num_warps=SAMPLE_WARPS, maxnreg=SAMPLE_REGISTERS,
    )  # fmt: skip
    launch(_blocks_kernel, (num_lines * num_blocks,))(
        a.logits, *limits, bounds, maxima, sums, above, counts, candidates,
        num_blocks, room, a.vocab_size, a.logits_stride, width,
        tiles, TILE_SIZE, min(32 * BLOCK_WARPS, cut.block // NEIGHBOURS.value), overlaps,
        num_warps=BLOCK_WARPS, launch_pdl=overlaps, maxnreg=BLOCK_REGISTERS,
    )  # fmt: skip
    launch(_floors_kernel, (num_lines,))(
        a.logits, *limits, bounds, maxima, sums, above, counts, candidates, a.floors,
        num_blocks, a.vocab_size, a.logits_stride, width, wide,
        triton.next_power_of_2(num_blocks), cut.candidates, room, cut.sample, cut.group,
        tiles, TILE_SIZE, min(32 * cut.floor_warps, cut.block // NEIGHBOURS.value), overlaps,
        num_warps=cut.floor_warps, launch_pdl=overlaps,
    )  # fmt: skip


def _split(workspace: Tensor, num_lines: int, num_blocks: int, room: int) -> tuple[Tensor, ...]:
    """Return the bounds of lines, the maxima, sums and counts of their blocks, and what blocks set aside."""
    of_blocks = num_lines * num_blocks
    sizes = [num_lines * shared.NUMBERS_PER_LINE, *[of_blocks] * shared.NUMBERS_PER_BLOCK, of_blocks * room]
    assert sum(sizes) <= workspace.numel(), f"a workspace of {workspace.numel()} for {sum(sizes)} numbers"
    return tuple(workspace[: sum(sizes)].split(sizes))


@triton.jit
def _limits(p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width):
    """Return the temperature of a line, its limits, and which of them hold: neither past the drafts, or at 0."""
    i_row = i_line // width
    temperature, num_drafts = tl.load(p_temperature + i_row), tl.load(p_num_drafts + i_row)
    top_k, top_p = tl.load(p_top_k + i_row), tl.load(p_top_p + i_row)
    is_limited = (temperature > 0) & (i_line % width <= num_drafts)
    return temperature, top_k, top_p, is_limited & (top_k > 0) & (top_k < vocab_size), is_limited & (top_p < 1)


@kernel()
def _lines_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_floors,
    vocab_size, logits_stride, width,
    LENGTH: tl.constexpr,
):  # fmt: skip
    """Find the floor of a line that is read at once."""
    i_line = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    floor = NEVER
    if limits_k | limits_p:
        o_token = tl.arange(0, LENGTH)[None, :]
        b_logits = tl.load(p_logits + i_line * logits_stride + o_token, mask=o_token < vocab_size, other=NEVER)
        maximum, scale = tl.max(b_logits), scale_of(temperature)
        is_undefined = tl.max(((b_logits < float("inf")) == 0).to(tl.int32))
        if (is_undefined == 0) & (maximum > NEVER):
            total = tl.sum(weight(b_logits, NEVER, maximum, scale))
            key, _is_found = floor_key(
                b_logits, tl.minimum(maximum, NEVER), maximum, True,
                top_k, top_p, limits_k, limits_p, maximum, total, 0.0, scale,
            )  # fmt: skip
            floor = logit_of(key)
    tl.store(p_floors + i_line, floor)


@kernel("p_logits", "vocab_size", "logits_stride")
def _bounds_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_bounds,
    vocab_size, logits_stride, width, aimed, wide,
    SAMPLE: tl.constexpr, GROUP: tl.constexpr, SAMPLES: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Find in a sample of a line a bound that the floor is hardly ever below, or an interval that has it."""
    let_next_begin(OVERLAPS)
    i_line = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    if limits_k | limits_p:
        p_line = p_logits + i_line * logits_stride
        b_logits = sample(p_line, vocab_size, 0, SAMPLE, GROUP, SAMPLES)
        lowest, highest, is_wide = NEVER, float("inf"), limits_p & (limits_k == 0)
        if is_wide:
            scale = scale_of(temperature)
            b_masses = weight(b_logits, NEVER, tl.maximum(tl.max(b_logits), LEAST), scale)
            total = tl.sum(b_masses)
            is_wide = total * total > SPREAD * SAMPLE * tl.sum(b_masses * b_masses)
            if is_wide:
                lowest, highest, rank = interval(
                    p_line, vocab_size, NEVER, float("inf"), top_p, scale, wide, SAMPLE, GROUP, SAMPLES
                )
                is_wide = rank > FAR_BELOW * aimed
        if is_wide == 0:
            expected = tl.where(limits_k, top_k, aimed).to(tl.float32) * SAMPLE / vocab_size
            rank = tl.where(limits_k, expected + 6 * tl.sqrt(expected) + 8, expected)
            b_ones = tl.full([1, SAMPLE], 1.0, dtype=tl.float32)
            key, _is_reached = largest_key(
                key_of(b_logits), b_ones, lowest_key(), highest_key(), rank, 0.0, STEPS_OF_BOUND
            )
            lowest, highest = logit_of(key), float("inf")
        tl.store(p_bounds + i_line * 2, lowest)
        tl.store(p_bounds + i_line * 2 + 1, highest)


@kernel("p_logits", "vocab_size", "logits_stride")
def _blocks_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_bounds,
    p_maxima, p_sums, p_above, p_counts, p_candidates,
    num_blocks, room, vocab_size, logits_stride, width,
    TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Write of a block its maximum, NaN if it has NaN or inf, its weights' sum, and what is not below the bound.

    Its tiles are spread over the line, so that no block has most of the largest.
    """
    let_next_begin(OVERLAPS)
    i_block, i_line = tl.program_id(0) % num_blocks, (tl.program_id(0) // num_blocks).to(tl.int64)
    temperature, _top_k, _top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    if limits_k | limits_p:
        p_line = p_logits + i_line * logits_stride
        b_logits = block(p_line, i_block, num_blocks, vocab_size, TILES, TILE, THREADS)
        maximum = tl.max(b_logits)
        finite = tl.where((maximum > NEVER) & (maximum < float("inf")), maximum, 0.0)
        total = tl.sum(tl.exp2((b_logits - finite) * scale_of(temperature)))
        # A maximum passes over NaN, a sum does not.
        maximum = tl.where(total < float("inf"), maximum, float("nan"))
        wait_for_others(OVERLAPS)
        lowest, highest = tl.maximum(tl.load(p_bounds + i_line * 2), LEAST), tl.load(p_bounds + i_line * 2 + 1)
        if highest < float("inf"):
            above = tl.sum(tl.where(b_logits >= highest, tl.exp2((b_logits - finite) * scale_of(temperature)), 0.0))
            tl.store(p_above + tl.program_id(0), above)
            b_logits = tl.where(b_logits < highest, b_logits, NEVER)
        i_program = tl.program_id(0).to(tl.int64)
        count = set_aside(
            b_logits, lowest, p_line, p_candidates + i_program * room, i_block, num_blocks, room, TILE, THREADS
        )
        tl.store(p_maxima + i_program, maximum)
        tl.store(p_sums + i_program, total)
        tl.store(p_counts + i_program, count.to(tl.float32))
    else:
        wait_for_others(OVERLAPS)


@kernel("p_logits", "vocab_size", "logits_stride")
def _floors_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_bounds,
    p_maxima, p_sums, p_above, p_counts, p_candidates, p_floors,
    num_blocks, vocab_size, logits_stride, width, wide,
    BLOCKS: tl.constexpr, CANDIDATES: tl.constexpr, ROOM: tl.constexpr, SAMPLE: tl.constexpr, GROUP: tl.constexpr,
    TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Find the floor of a line among what is set aside, or else in the line."""
    i_line = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    floor = NEVER
    wait_for_others(OVERLAPS)
    if limits_k | limits_p:
        i_first = i_line * num_blocks
        o_block, scale = tl.arange(0, BLOCKS), scale_of(temperature)
        b_maxima = tl.load(p_maxima + i_first + o_block, mask=o_block < num_blocks, other=NEVER)
        b_sums = tl.load(p_sums + i_first + o_block, mask=o_block < num_blocks, other=0.0)
        b_counts = tl.load(p_counts + i_first + o_block, mask=o_block < num_blocks, other=0.0)
        lowest, highest = tl.load(p_bounds + i_line * 2), tl.load(p_bounds + i_line * 2 + 1)
        p_line = p_logits + i_line * logits_stride
        b_is_nan = (b_maxima < float("inf")) == 0
        maximum = tl.max(tl.where(b_is_nan, NEVER, b_maxima), axis=0)
        if (tl.max(b_is_nan.to(tl.int32), axis=0) == 0) & (maximum > NEVER):
            b_factors = weight(b_maxima, NEVER, maximum, scale)
            total, above = tl.sum(b_sums * b_factors, axis=0), 0.0
            if highest < float("inf"):
                b_above = tl.load(p_above + i_first + o_block, mask=o_block < num_blocks, other=0.0)
                above = tl.sum(b_above * b_factors, axis=0)
            most = tl.max(b_counts, axis=0)
            p_counts, p_candidates = p_counts + i_first, p_candidates + i_first * ROOM
            is_all = (lowest == NEVER) & (highest == float("inf"))
            key, is_found = lowest_key(), False
            if most <= ROOM // FEWEST:
                key, is_found = floor_key_aside(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, FEWEST,
                )  # fmt: skip
            elif most <= ROOM // FEWER:
                key, is_found = floor_key_aside(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, FEWER,
                )  # fmt: skip
            elif most <= ROOM:
                key, is_found = floor_key_aside(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, 1,
                )  # fmt: skip
            if (is_found == 0) & limits_p & (limits_k == 0):
                # What is left to search, and the mass above it and in it.
                start, end, mass = NEVER, float("inf"), total
                if highest < float("inf"):
                    if above < tl.maximum(top_p * total, LEAST_MASS):
                        end, mass = highest, total - above
                    else:
                        start, mass, above = highest, above, 0.0
                elif most <= ROOM:
                    b_logits = fetch(p_counts, p_candidates, num_blocks, CANDIDATES, ROOM, ROOM)
                    above = tl.sum(weight(b_logits, NEVER, maximum, scale))
                    end, mass = lowest, total - above
                key, is_found = floor_key_of_intervals(
                    p_line, p_counts, p_candidates, num_blocks, vocab_size, top_p, maximum, total, scale,
                    start, end, above, mass, wide, CANDIDATES, ROOM, SAMPLE, GROUP, TILES, TILE, THREADS,
                )  # fmt: skip
            if is_found == 0:
                key = floor_key_of_line(
                    p_line, vocab_size, top_k, top_p, limits_k, limits_p, maximum, total, scale
                )  # fmt: skip
            floor = logit_of(key)
    tl.store(p_floors + i_line, floor)
