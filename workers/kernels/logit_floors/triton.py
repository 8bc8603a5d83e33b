"""Find the floor of each row of logits: the lowest logit that top-k and top-p keep."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from workers.kernels.floor_search.triton import (
    LEAST_MASS,
    floor_key,
    floor_key_of_candidates,
    floor_key_of_intervals,
    floor_key_of_line,
)
from workers.kernels.launch.triton import can_overlap, kernel, launch, let_next_begin, wait_for_others
from workers.kernels.logit_blocks.triton import NEIGHBOURS, block, fetch, store_candidates
from workers.kernels.logit_floors import definition as shared
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_keys.triton import highest_key, key_of, largest_key, logit_of, lowest_key
from workers.kernels.logit_samples.triton import LEAST, interval, sample
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

# Consecutive logits of a block; tiles of a block are spread over the row.
TILE_SIZE = 64
BLOCK_WARPS = 4
# Steps of the search for a bound: sign, exponent and first bits of the fraction.
STEPS_OF_BOUND = tl.constexpr(8)
# If there are few candidates, only a half or a quarter of the space is searched.
FEWER, FEWEST = tl.constexpr(2), tl.constexpr(4)
# Fraction of the candidate space that a sample aims at: with six deviations of a block and the sample, half the space.
AIMED = 0.34
# Fraction of the candidate space that an interval aims at.
WIDE = 0.55
# Warps of the program that reads a sample.
SAMPLE_WARPS = 8
# Limits on registers per thread, so that enough programs run at once.
SAMPLE_REGISTERS, BLOCK_REGISTERS = 64, 80
# A sample locates the floor if its mass equals that of equally heavy logits that are at least this fraction of it.
SPREAD = tl.constexpr(1 / 64)
# A row is flat if its floor has this many times as many logits above it as the sample aims at.
FAR_BELOW = tl.constexpr(3)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a row is read: at once if short, else in blocks, with a sample that bounds its floor."""

    short: int = shared.SHORT_LINE
    block: int = shared.BLOCK_SIZE
    sample: int = 4096
    # Consecutive logits of the sample.
    group: int = 32
    # Number of samples for rows with a floor that is not among the largest logits.
    samples: int = 4
    candidates: int = shared.CANDIDATES_MAX
    line_warps: int = 8
    floor_warps: int = 4


def logit_floors(a: LogitFloors) -> None:
    find_floors(a, Cut())


def find_floors(a: LogitFloors, cut: Cut) -> None:
    """Set `floors` to the lowest logit that top-k and top-p keep in each row.

    1. A sample of the row gives a lower bound that the floor is hardly ever below; for a flat row, an interval around
    it.
    2. One program per block reads the row once, adds up weights, and stores the candidates: logits above the bound or
       in the interval.
    3. The floor is searched among the candidates. If it is not there, or there are too many candidates, the row is read
       again for other intervals, and finally searched as a whole.
    """
    limits = (a.temperature, a.top_k, a.top_p, a.num_drafts)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_lines = num_rows * width
    assert a.logits.numel() == num_lines * a.logits_stride
    assert a.floors.numel() == num_lines
    if a.vocab_size <= cut.short:
        # There are only two sizes, because each compiles a kernel.
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
    assert room >= FEWEST, f"{cut.candidates} candidates are too few for {num_blocks} blocks of {a.vocab_size} logits"
    bounds, maxima, sums, above, counts, candidates = _split(a.workspace, num_lines, num_blocks, room)
    # The space of a block overflows only if its count is six deviations above the mean.
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
    """Split the workspace: bounds by row; maxima, sums, masses, counts and candidates by block."""
    of_blocks = num_lines * num_blocks
    sizes = [num_lines * shared.NUMBERS_PER_LINE, *[of_blocks] * shared.NUMBERS_PER_BLOCK, of_blocks * room]
    assert sum(sizes) <= workspace.numel(), f"the workspace has {workspace.numel()} numbers, {sum(sizes)} are needed"
    return tuple(workspace[: sum(sizes)].split(sizes))


@triton.jit
def _limits(p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width):
    """Return a row's temperature, top_k and top_p, and whether top-k and top-p limit it.

    Neither limits a row of temperature 0 or a column past the draft tokens.
    """
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
    """Find the floor of a short row, which is read at once."""
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
    """Bound the floor of a row from a sample of its logits."""
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
    """Write the maximum, the sum of weights and the candidates of a block.

    The maximum is NaN if the block has NaN or inf.

    The tiles of a block are spread over the row, so that no block has most of the largest logits.
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
        # A maximum ignores NaN, a sum does not.
        maximum = tl.where(total < float("inf"), maximum, float("nan"))
        wait_for_others(OVERLAPS)
        lowest, highest = tl.maximum(tl.load(p_bounds + i_line * 2), LEAST), tl.load(p_bounds + i_line * 2 + 1)
        if highest < float("inf"):
            above = tl.sum(tl.where(b_logits >= highest, tl.exp2((b_logits - finite) * scale_of(temperature)), 0.0))
            tl.store(p_above + tl.program_id(0), above)
            b_logits = tl.where(b_logits < highest, b_logits, NEVER)
        i_program = tl.program_id(0).to(tl.int64)
        count = store_candidates(
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
    """Find the floor of a row among its candidates, or by reading the row again."""
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
                key, is_found = floor_key_of_candidates(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, FEWEST,
                )  # fmt: skip
            elif most <= ROOM // FEWER:
                key, is_found = floor_key_of_candidates(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, FEWER,
                )  # fmt: skip
            elif most <= ROOM:
                key, is_found = floor_key_of_candidates(
                    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
                    top_k, top_p, limits_k, limits_p, maximum, total, above, scale, CANDIDATES, ROOM, 1,
                )  # fmt: skip
            if (is_found == 0) & limits_p & (limits_k == 0):
                # The interval left to search, and the mass above it and in it.
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
