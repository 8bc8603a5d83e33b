"""Find the lowest logit that top-k and top-p keep, line by line."""

import torch
import triton
import triton.language as tl

from workers.kernels.launch.triton import check_flat, launch
from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

# A line is cut into tiles. So many of them are read at once where every tile is, and where a few are.
TILE = 128
TILES_PER_BLOCK = 32
TILES_PER_STEP = 32
# So many logits of a line are set aside for the search; where more could be the floor, the whole line is searched.
CANDIDATES_MAX = 16384
NUM_WARPS = 8
SEARCHED_AT_ONCE = tl.constexpr(1024)
# A search finds a key digit by digit.
DIGIT_BITS = tl.constexpr(4)
DIGITS = tl.constexpr(16)
NUM_DIGITS = tl.constexpr(8)
# The key of -inf: every logit has at least that.
LOWEST_KEY = tl.constexpr(0x007FFFFF)
# The mass of any logit that is kept is not below this; that of none is 0.
LEAST_MASS = tl.constexpr(1.1754943508222875e-38)
# What a tile is known to have at or above a logit is this share short of what it may have, for sums are rounded.
ROUNDING = tl.constexpr(2.0**-10)
# What a search adds up.
COUNTS = tl.constexpr(0)
WEIGHTS = tl.constexpr(1)
TILE_WEIGHTS = tl.constexpr(2)


def logit_floors(a: LogitFloors) -> None:
    """Set floors to the lowest logit of each line that stays.

    One program a block reads the line once, for the maximum and the sum of each tile. From these one program a line
    knows a logit that the floor is not below, sets aside the few that are not below it either, and searches those.
    """
    check_flat(a.logits, a.temperature, a.top_k, a.top_p, a.num_drafts, a.floors)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    assert a.logits.numel() == num_rows * width * a.logits_stride
    assert a.floors.numel() == num_rows * width
    num_lines, num_tiles = num_rows * width, triton.cdiv(a.vocab_size, TILE)
    num_blocks = triton.cdiv(num_tiles, TILES_PER_BLOCK)
    num_candidates = min(num_tiles * TILE, CANDIDATES_MAX)
    maxima, sums, candidates = (
        torch.empty(num_lines * size, dtype=torch.float32, device=a.logits.device)
        for size in (num_tiles, num_tiles, num_candidates)
    )
    listed = torch.empty(num_lines * num_tiles, dtype=torch.int32, device=a.logits.device)
    given = (a.logits, a.temperature, a.top_k, a.top_p, a.num_drafts)
    launch(_tiles_kernel, (num_lines * num_blocks,))(
        *given, maxima, sums,
        num_blocks, num_tiles, a.vocab_size, a.logits_stride, width,
        TILES_PER_BLOCK, TILE,
        num_warps=4,
    )  # fmt: skip
    launch(_floors_kernel, (num_lines,))(
        *given, maxima, sums, listed, candidates, a.floors,
        num_candidates, num_tiles, a.vocab_size, a.logits_stride, width,
        triton.next_power_of_2(num_tiles), TILES_PER_STEP, TILE,
        num_warps=NUM_WARPS,
    )  # fmt: skip


@triton.jit
def _limits(p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width):
    """Return the temperature of a line, its limits, and which of them hold: neither past the drafts, or at 0."""
    i_row = i_line // width
    temperature, num_drafts = tl.load(p_temperature + i_row), tl.load(p_num_drafts + i_row)
    top_k, top_p = tl.load(p_top_k + i_row), tl.load(p_top_p + i_row)
    is_limited = (temperature > 0) & (i_line % width <= num_drafts)
    return temperature, top_k, top_p, is_limited & (top_k > 0) & (top_k < vocab_size), is_limited & (top_p < 1)


@triton.jit(do_not_specialize=["num_blocks", "num_tiles", "width"])
def _tiles_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_maxima, p_sums,
    num_blocks, num_tiles, vocab_size,
    logits_stride, width,
    TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Write the maximum of each tile of a block, NaN if it has NaN or inf, and its weights' sum relative to that."""
    i_line, i_block = (tl.program_id(0) // num_blocks).to(tl.int64), tl.program_id(0) % num_blocks
    temperature, _, _, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    if limits_k | limits_p:
        o_tile = i_block * TILES + tl.arange(0, TILES)
        b_token = o_tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        p_line = p_logits + i_line * logits_stride
        # What every block but the last of a line has needs no mask.
        if (i_block + 1) * TILES * TILE <= vocab_size:
            b_logits = tl.load(p_line + b_token)
        else:
            b_logits = tl.load(p_line + b_token, mask=b_token < vocab_size, other=NEVER)
        b_is_nan = (b_logits < float("inf")) == 0
        b_logits = tl.where(b_is_nan, NEVER, b_logits)
        b_maximum, b_has_nan = tl.max(b_logits, axis=1), tl.max(b_is_nan.to(tl.int32), axis=1)
        b_finite = tl.where(b_maximum > NEVER, b_maximum, 0.0)
        b_sum = tl.sum(tl.exp2((b_logits - b_finite[:, None]) * scale_of(temperature)), axis=1)
        b_maximum = tl.where(b_has_nan > 0, float("nan"), b_maximum)
        o_place = i_line * num_tiles + o_tile
        tl.store(p_maxima + o_place, b_maximum, mask=o_tile < num_tiles)
        tl.store(p_sums + o_place, b_sum, mask=o_tile < num_tiles)


@triton.jit(do_not_specialize=["num_candidates", "num_tiles", "width"])
def _floors_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_maxima, p_sums, p_listed, p_candidates, p_floors,
    num_candidates, num_tiles, vocab_size,
    logits_stride, width,
    TILES: tl.constexpr, TILES_PER_STEP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    i_line = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    floor = temperature * 0 + NEVER
    if limits_k | limits_p:
        scale = scale_of(temperature)
        p_maxima, p_sums, p_listed = (
            p_maxima + i_line * num_tiles, p_sums + i_line * num_tiles, p_listed + i_line * num_tiles
        )  # fmt: skip
        o_tile = tl.arange(0, TILES)
        b_maxima = tl.load(p_maxima + o_tile, mask=o_tile < num_tiles, other=NEVER)
        b_is_nan = (b_maxima < float("inf")) == 0
        is_undefined, maximum = tl.max(b_is_nan.to(tl.int32), axis=0), tl.max(tl.where(b_is_nan, NEVER, b_maxima), axis=0)
        if (is_undefined == 0) & (maximum > NEVER):
            b_sums = tl.load(p_sums + o_tile, mask=o_tile < num_tiles, other=0.0)
            total = tl.sum(b_sums * weight(b_maxima, NEVER, maximum, scale), axis=0)
            lowest_key = tl.max(tl.full([1], LOWEST_KEY, dtype=tl.uint32), axis=0)
            if limits_k:
                # So many tiles have a logit that is not below the one found, and so has the line.
                found = _largest_key(
                    p_maxima, p_sums, num_tiles, lowest_key, top_k.to(tl.float32), maximum, scale, TILE, COUNTS
                )
            else:
                bound = top_p * total + ROUNDING * total
                found = _largest_key(
                    p_maxima, p_sums, num_tiles, lowest_key, bound, maximum, scale, TILE, TILE_WEIGHTS
                )
            num_found = _set_aside(
                p_logits + i_line * logits_stride, b_maxima, p_listed, p_candidates + i_line * num_candidates,
                _logit_of(found), num_candidates, num_tiles, vocab_size, TILES, TILES_PER_STEP, TILE,
            )  # fmt: skip
            p_searched, length = p_candidates + i_line * num_candidates, num_found
            if num_found > num_candidates:
                p_searched, length = p_logits + i_line * logits_stride, vocab_size
            key = lowest_key
            if limits_k:
                key = _largest_key(
                    p_searched, p_sums, length, key, top_k.to(tl.float32), maximum, scale, TILE, COUNTS
                )
            if limits_p:
                if limits_k:
                    total = _mass(p_searched, length, key, maximum, scale)
                least = tl.maximum(top_p * total, LEAST_MASS)
                key = _largest_key(p_searched, p_sums, length, key, least, maximum, scale, TILE, WEIGHTS)
            floor = _logit_of(key)
    tl.store(p_floors + i_line, floor)


@triton.jit
def _set_aside(
    p_line, b_maxima, p_listed, p_candidates, lowest, num_candidates, num_tiles, vocab_size,
    TILES: tl.constexpr, TILES_PER_STEP: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Copy the logits of a line that are not below one, in their order, and return how many there are.

    Those that there is no room for are counted alone.
    """
    o_tile = tl.arange(0, TILES)
    is_listed = (o_tile < num_tiles) & (b_maxima >= lowest)
    tl.store(p_listed + tl.cumsum(is_listed.to(tl.int32), axis=0) - 1, o_tile, mask=is_listed)
    num_listed = tl.sum(is_listed.to(tl.int32), axis=0)
    # What other threads of this program have stored is loaded.
    tl.debug_barrier()
    count = num_listed * 0
    for start in range(0, num_listed, TILES_PER_STEP):
        o_listed = start + tl.arange(0, TILES_PER_STEP)
        b_tile = tl.load(p_listed + o_listed, mask=o_listed < num_listed, other=num_tiles)
        b_token = b_tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
        b_logits = tl.load(p_line + b_token, mask=b_token < vocab_size, other=NEVER)
        is_candidate = (b_token < vocab_size) & (b_logits >= lowest)
        b_rank = tl.cumsum(is_candidate.to(tl.int32), axis=1)
        b_of_tile = tl.sum(is_candidate.to(tl.int32), axis=1)
        b_place = count + (tl.cumsum(b_of_tile, axis=0) - b_of_tile)[:, None] + b_rank - 1
        tl.store(p_candidates + b_place, b_logits, mask=is_candidate & (b_place < num_candidates))
        count += tl.sum(b_of_tile, axis=0)
    tl.debug_barrier()
    return count


@triton.jit
def _key_of(b_logits):
    """Return words in the order of the logits; both zeros have one."""
    b_bits = tl.where(b_logits == 0, 0.0, b_logits).to(tl.uint32, bitcast=True)
    return b_bits ^ tl.where(b_bits >> 31 != 0, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def _logit_of(b_key):
    b_bits = b_key ^ tl.where(b_key >> 31 != 0, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return b_bits.to(tl.float32, bitcast=True)


@triton.jit
def _at_most(b_logits, maximum):
    return tl.where(b_logits < maximum, b_logits, maximum)


@triton.jit
def _mass(p_logits, length, key, maximum, scale):
    """Return the sum of the weights of logits with at least this key."""
    b_mass = tl.zeros([SEARCHED_AT_ONCE], dtype=tl.float32)
    for start in range(0, length, SEARCHED_AT_ONCE):
        o_logit = start + tl.arange(0, SEARCHED_AT_ONCE)
        b_logits = tl.load(p_logits + o_logit, mask=o_logit < length, other=NEVER)
        b_mass += tl.where(_key_of(b_logits) >= key, weight(b_logits, NEVER, maximum, scale), 0.0)
    return tl.sum(b_mass, axis=0)


@triton.jit
def _largest_key(
    p_logits, p_sums, length, key, least, maximum, scale, TILE: tl.constexpr, ADDED: tl.constexpr
):  # fmt: skip
    """Return the largest key, not below `key`, whose logits add up to at least `least`; `key` if there is none.

    Of COUNTS and WEIGHTS. The logits may be the maxima of tiles: then TILE_WEIGHTS are what each tile has at least in
    logits that are not below: its maximum, and its sum less that of as many of the largest others as it may have.
    """
    o_digit = tl.arange(0, DIGITS)
    b_step = o_digit.to(tl.uint32) << (DIGIT_BITS * (NUM_DIGITS - 1))
    found = key * 0
    for _ in range(NUM_DIGITS):
        b_key = tl.maximum(found | b_step, key)
        b_total = tl.zeros([DIGITS], dtype=tl.float32)
        if ADDED == TILE_WEIGHTS:
            b_below = (TILE - 1) * weight(_at_most(_logit_of(b_key), maximum), NEVER, maximum, scale)
        for start in range(0, length, SEARCHED_AT_ONCE):
            o_logit = start + tl.arange(0, SEARCHED_AT_ONCE)
            is_logit = o_logit < length
            b_logits = tl.load(p_logits + o_logit, mask=is_logit, other=NEVER)
            is_kept = is_logit[None, :] & (_key_of(b_logits)[None, :] >= b_key[:, None])
            if ADDED == COUNTS:
                b_total += tl.sum(is_kept.to(tl.float32), axis=1)
            else:
                b_weight = weight(b_logits, NEVER, maximum, scale)
                if ADDED == WEIGHTS:
                    b_total += tl.sum(tl.where(is_kept, b_weight[None, :], 0.0), axis=1)
                else:
                    b_sum = tl.load(p_sums + o_logit, mask=is_logit, other=0.0) * b_weight
                    b_sure = tl.maximum(b_weight[None, :], b_sum[None, :] - b_below[:, None])
                    b_total += tl.sum(tl.where(is_kept, b_sure, 0.0), axis=1)
        found = tl.max(tl.where((b_total >= least) | (o_digit == 0), found | b_step, found), axis=0)
        b_step = b_step >> DIGIT_BITS
    return tl.maximum(found, key)
