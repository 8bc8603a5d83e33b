"""Find the lowest logit that top-k and top-p keep, line by line."""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from workers.kernels.launch.triton import can_overlap, kernel, launch, let_next_begin, wait_for_others
from workers.kernels.logit_floors import definition as shared
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_keys.triton import (
    BITS,
    STEPS,
    VALUES,
    digits,
    highest_key,
    key_of,
    largest_key,
    logit_of,
    lowest_key,
)
from workers.kernels.logit_samples.triton import LEAST, interval, sample
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

# Logits that are read in one piece.
TILE_SIZE = 64
BLOCK_WARPS = 4
# Consecutive logits of one thread.
NEIGHBOURS = tl.constexpr(4)
# The steps of a search that a bound needs: for its sign, its exponent and the first bits of its fraction.
STEPS_OF_BOUND = tl.constexpr(8)
# The mass of any logit that is kept is not below this; that of none is 0.
LEAST_MASS = tl.constexpr(1.1754943508222875e-38)
# Logits that are read at once of a line that does not fit.
READ_AT_ONCE = tl.constexpr(4096)
# Where few logits are set aside, half of them or a quarter are searched.
FEWER, FEWEST = tl.constexpr(2), tl.constexpr(4)
# Share of the room that a sample aims at: with six deviations of a block and of the sample, half of the room.
AIMED = 0.34
# Share of the room that an interval aims at.
WIDE = 0.55
# Warps of the program that reads a sample.
SAMPLE_WARPS = 8
# Limits of a thread's registers, so that enough programs run at once.
SAMPLE_REGISTERS, BLOCK_REGISTERS, FLOOR_REGISTERS = 64, 80, 128
# A sample of fewer logits than these, each as heavy as the others, does not tell where the floor is.
SPREAD = tl.constexpr(30.0)
# Times that a line is read again for an interval.
TRIES = tl.constexpr(3)


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
    num_warps: int = 8


def logit_floors(a: LogitFloors) -> None:
    find_floors(a, Cut())


def find_floors(a: LogitFloors, cut: Cut) -> None:
    """Set floors to the lowest logit of each line that stays.

    A sample of a line gives a logit that its floor is hardly below. Programs of blocks read the line once, add it up,
    and set aside the few logits that are not below that one; these are searched for the floor. Where it is not among
    them, or they are more than there is room for, the line itself is searched.
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
            num_warps=cut.num_warps,
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
        tiles, TILE_SIZE, min(32 * cut.num_warps, cut.block // NEIGHBOURS.value), overlaps,
        num_warps=cut.num_warps, launch_pdl=overlaps, maxnreg=FLOOR_REGISTERS,
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
            key, _is_found = _floor_key(
                b_logits, tl.minimum(maximum, NEVER), maximum, True, top_k, top_p, limits_k, limits_p, maximum, total, 0.0, scale
            )
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
            b_masses = weight(b_logits, NEVER, tl.max(b_logits), scale)
            total = tl.sum(b_masses)
            is_wide = total * total > SPREAD * tl.sum(b_masses * b_masses)
            if is_wide:
                lowest, highest, rank = interval(
                    p_line, vocab_size, NEVER, float("inf"), top_p, scale, wide, SAMPLE, GROUP, SAMPLES
                )
                is_wide = rank > aimed
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
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_bounds, p_maxima, p_sums, p_above, p_counts, p_candidates,
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
        b_logits = _block(p_line, i_block, num_blocks, vocab_size, TILES, TILE, THREADS)
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
        count = _set_aside(
            b_logits, lowest, p_line, p_candidates + i_program * room, i_block, num_blocks, room, TILE, THREADS
        )
        tl.store(p_maxima + i_program, maximum)
        tl.store(p_sums + i_program, total)
        tl.store(p_counts + i_program, count.to(tl.float32))
    else:
        wait_for_others(OVERLAPS)


@triton.jit
def _block(p_line, i_block, num_blocks, vocab_size, TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr):
    """Return the logits of a block; -inf past the end of the line.

    A thread reads neighbours, several times. Shape: [threads, reads, neighbours].
    """
    READS: tl.constexpr = TILES * TILE // (THREADS * NEIGHBOURS)
    o_read = (tl.arange(0, READS)[None, :] * THREADS + tl.arange(0, THREADS)[:, None]) * NEIGHBOURS
    o_first = (o_read // TILE * num_blocks + i_block) * TILE + o_read % TILE
    b_token = o_first[:, :, None] + tl.arange(0, NEIGHBOURS)[None, None, :]
    # Nearly every block is whole, and needs no mask.
    if ((TILES - 1) * num_blocks + i_block + 1) * TILE <= vocab_size:
        b_logits = tl.load(p_line + b_token)
    else:
        b_logits = tl.load(p_line + b_token, mask=b_token < vocab_size, other=NEVER)
    return b_logits


@triton.jit
def _set_aside(
    b_logits, lowest, p_line, p_candidates, i_block, num_blocks, room,
    TILE: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Store the logits of a block that are not below the lowest, and return how many they are.

    A thread marks its own in a word, and fetches them again: they are few, just read, and so in the cache.
    """
    READS: tl.constexpr = b_logits.shape[1]
    tl.static_assert(READS * NEIGHBOURS <= 32)
    b_bit = tl.arange(0, READS)[None, :, None] * NEIGHBOURS + tl.arange(0, NEIGHBOURS)[None, None, :]
    b_bits = tl.where(b_logits >= lowest, (b_bit * 0 + 1).to(tl.uint32) << b_bit.to(tl.uint32), 0).to(tl.uint32)
    b_bits = tl.sum(tl.sum(b_bits, axis=2), axis=1)
    b_count = _num_bits(b_bits).to(tl.int32)
    b_place = tl.cumsum(b_count, axis=0) - b_count
    count = tl.sum(b_count, axis=0)
    # Nothing is stored where there is no room for all.
    for _ in range(tl.where(count <= room, tl.max(b_count, axis=0), 0)):
        b_lowest = b_bits & (~b_bits + 1)
        b_index = (b_lowest.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127
        b_one = (b_index // NEIGHBOURS * THREADS + tl.arange(0, THREADS)) * NEIGHBOURS + b_index % NEIGHBOURS
        p_one = p_line + (b_one // TILE * num_blocks + i_block) * TILE + b_one % TILE
        b_logit = tl.load(p_one, mask=b_bits != 0, other=NEVER)
        tl.store(p_candidates + b_place, b_logit, mask=b_bits != 0)
        b_bits ^= b_lowest
        b_place += 1
    return count


@triton.jit
def _num_bits(b_words):
    """Return the number of bits set in each word."""
    b_words -= (b_words >> 1) & 0x55555555
    b_words = (b_words & 0x33333333) + ((b_words >> 2) & 0x33333333)
    return (((b_words + (b_words >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24


@kernel("p_logits", "vocab_size", "logits_stride")
def _floors_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_bounds, p_maxima, p_sums, p_above, p_counts, p_candidates,
    p_floors,
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
            key, is_found = lowest_key(), most < 0
            if most <= ROOM // FEWEST:
                b_logits = _fetch(p_counts, p_candidates, num_blocks, CANDIDATES // FEWEST, ROOM, ROOM // FEWEST)
                key, is_found = _floor_key(
                    b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale
                )
            elif most <= ROOM // FEWER:
                b_logits = _fetch(p_counts, p_candidates, num_blocks, CANDIDATES // FEWER, ROOM, ROOM // FEWER)
                key, is_found = _floor_key(
                    b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale
                )
            elif most <= ROOM:
                b_logits = _fetch(p_counts, p_candidates, num_blocks, CANDIDATES, ROOM, ROOM)
                key, is_found = _floor_key(
                    b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale
                )
            if (is_found == 0) & limits_p & (limits_k == 0):
                # What is left to search, and the mass above it and in it.
                start, end, mass = NEVER, float("inf"), total
                if highest < float("inf"):
                    if above < tl.maximum(top_p * total, LEAST_MASS):
                        end, mass = highest, total - above
                    else:
                        start, mass, above = highest, above, 0.0
                elif most <= ROOM:
                    b_logits = _fetch(p_counts, p_candidates, num_blocks, CANDIDATES, ROOM, ROOM)
                    above = tl.sum(weight(b_logits, NEVER, maximum, scale))
                    end, mass = lowest, total - above
                key, is_found = _search_again(
                    p_line, p_counts, p_candidates, num_blocks, vocab_size, top_p, maximum, total, scale,
                    start, end, above, mass, wide, CANDIDATES, ROOM, SAMPLE, GROUP, TILES, TILE, THREADS,
                )  # fmt: skip
            if is_found == 0:
                key = _floor_key_of_line(
                    p_line, vocab_size, top_k, top_p, limits_k, limits_p, maximum, total,
                    scale,
                )  # fmt: skip
            floor = logit_of(key)
    tl.store(p_floors + i_line, floor)


@triton.jit
def _search_again(
    p_line, p_counts, p_candidates, num_blocks, vocab_size, top_p, maximum, total, scale,
    start, end, above, mass, wide,
    CANDIDATES: tl.constexpr, ROOM: tl.constexpr, SAMPLE: tl.constexpr, GROUP: tl.constexpr,
    TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Return the key of the floor of top_p, which is in [start, end), and whether it is found.

    `above` and `mass` are of the logits from the end on, and of those in between. The line is read once a try.
    """
    least = tl.maximum(top_p * total, LEAST_MASS)
    lowest, highest, top, is_aside, is_one, i_try = start, end, start, mass < 0, mass < 0, 0
    while ((is_aside | is_one) == 0) & (i_try < TRIES):
        share = (least - above) / mass
        lowest, highest, _rank = interval(p_line, vocab_size, start, end, share, scale, wide >> i_try, SAMPLE, GROUP, 1)
        lowest = tl.maximum(lowest, LEAST)
        b_above = tl.zeros([THREADS, TILES * TILE // (THREADS * NEIGHBOURS), NEIGHBOURS], dtype=tl.float32)
        b_mass, most, bottom = b_above, 0, float("inf")
        top = NEVER
        for i_block in range(num_blocks):
            b_logits = _block(p_line, i_block, num_blocks, vocab_size, TILES, TILE, THREADS)
            b_weights = weight(b_logits, lowest, maximum, scale)
            b_above += tl.where(b_logits >= highest, b_weights, 0.0)
            b_mass += b_weights
            b_logits = tl.where(b_logits < highest, b_logits, NEVER)
            top = tl.maximum(top, tl.max(b_logits))
            bottom = tl.minimum(bottom, tl.min(tl.where(b_logits >= lowest, b_logits, float("inf"))))
            p_room = p_candidates + i_block * ROOM
            count = _set_aside(b_logits, lowest, p_line, p_room, i_block, num_blocks, ROOM, TILE, THREADS)
            tl.store(p_counts + i_block, count.to(tl.float32))
            most = tl.maximum(most, count)
        tl.debug_barrier()
        above_highest, above_lowest = tl.sum(b_above), tl.sum(b_mass)
        if above_highest >= least:
            start, mass = highest, above_highest - above
        elif above_lowest < least:
            end, mass, above = lowest, above + mass - above_lowest, above_lowest
        else:
            start, end, mass, above = lowest, highest, above_lowest - above_highest, above_highest
            is_aside, is_one = most <= ROOM, top == bottom
        i_try += 1
    key, is_found = key_of(top), is_one
    if is_aside:
        b_logits = _fetch(p_counts, p_candidates, num_blocks, CANDIDATES, ROOM, ROOM)
        key, is_found = _floor_key(
            b_logits, lowest, highest, False, 0, top_p, False, True, maximum, total, above, scale
        )
    return key, is_found


@triton.jit
def _fetch(p_counts, p_candidates, num_blocks, LENGTH: tl.constexpr, ROOM: tl.constexpr, USED: tl.constexpr):
    """Return the logits that the blocks of a line have set aside, at most USED each; -inf fills the rest."""
    o_place = tl.arange(0, LENGTH)[None, :]
    o_block = o_place // USED
    b_count = tl.load(p_counts + o_block, mask=o_block < num_blocks, other=0.0)
    is_one = o_place % USED < b_count.to(tl.int32)
    return tl.load(p_candidates + o_block * ROOM + o_place % USED, mask=is_one, other=NEVER)


@triton.jit
def _floor_key(b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale):
    """Return the key of a line's floor out of its largest logits, or all, and whether it is found in them."""
    # Keys are relative to the first, so that their search has few steps.
    first = key_of(lowest)
    b_keys, key, most = key_of(b_logits) - first, first * 0, key_of(tl.minimum(highest, maximum)) - first
    has_top_k = limits_k == 0
    if limits_k:
        b_ones = (b_logits > NEVER).to(tl.float32)
        key, has_top_k = largest_key(b_keys, b_ones, key, most, top_k.to(tl.float32), 0.0, STEPS)
    has_top_k = has_top_k | is_all
    is_found = has_top_k
    if limits_p & has_top_k:
        b_masses = weight(b_logits, logit_of(first + key), maximum, scale)
        if limits_k:
            total = tl.sum(b_masses)
        least = tl.maximum(top_p * total, LEAST_MASS)
        key, has_top_p = largest_key(b_keys, b_masses, key, most, least, above, STEPS)
        is_found = (has_top_p & (above < least)) | limits_k | is_all
    return first + key, is_found


@triton.jit
def _largest_key_of_line(p_line, vocab_size, key, least, maximum, scale, WEIGHS: tl.constexpr):
    """Do what `_largest_key` does for a line that is read at every step, by its counts or its weights."""
    found, b_value = key * 0, digits()
    for _ in range(STEPS):
        b_next = found | b_value
        b_added = tl.zeros([VALUES, READ_AT_ONCE], dtype=tl.float32)
        for start in range(0, vocab_size, READ_AT_ONCE):
            o_token = start + tl.arange(0, READ_AT_ONCE)[None, :]
            b_logits = tl.load(p_line + o_token, mask=o_token < vocab_size, other=NEVER)
            b_keys = key_of(b_logits)
            b_masses = weight(b_logits, NEVER, maximum, scale) if WEIGHS else (b_logits > NEVER).to(tl.float32)
            b_added += tl.where(b_keys >= tl.maximum(b_next, key)[:, None], b_masses, 0.0)
        found = tl.max(tl.where(tl.sum(b_added, axis=1) >= least, b_next, found), axis=0)
        b_value = b_value >> BITS
    return tl.maximum(found, key)


@triton.jit
def _floor_key_of_line(p_line, vocab_size, top_k, top_p, limits_k, limits_p, maximum, total, scale):
    """Return the key of a line's floor."""
    key = lowest_key()
    if limits_k:
        key = _largest_key_of_line(p_line, vocab_size, key, top_k.to(tl.float32), maximum, scale, False)
    if limits_p:
        if limits_k:
            b_added = tl.zeros([1, READ_AT_ONCE], dtype=tl.float32)
            for start in range(0, vocab_size, READ_AT_ONCE):
                o_token = start + tl.arange(0, READ_AT_ONCE)[None, :]
                b_logits = tl.load(p_line + o_token, mask=o_token < vocab_size, other=NEVER)
                b_added += weight(b_logits, logit_of(key), maximum, scale)
            total = tl.sum(b_added)
        key = _largest_key_of_line(p_line, vocab_size, key, tl.maximum(top_p * total, LEAST_MASS), maximum, scale, True)
    return key
