"""Find the lowest logit that top-k and top-p keep, line by line."""

import triton
import triton.language as tl
from torch import Tensor

from workers.kernels.launch.triton import check_flat, kernel, launch
from workers.kernels.logit_floors import arguments as shared
from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

TILE = tl.constexpr(shared.TILE_SIZE)
# So many tiles of a line are read at once, where all are and where some are.
TILES_PER_BLOCK = 64
TILES_PER_STEP = 64
# So many logits are searched at once: of tiles or candidates, and of whole lines, which take more warps.
SEARCHED_AT_ONCE = tl.constexpr(2048)
SEARCHED_OF_LINES = tl.constexpr(4096)
# What is known of a line: a logit that the floor is not below, the largest one, the sum of all weights relative to it,
# how many tiles have one that is not below the first, or NO_LIMIT, and how many logits are not.
LOWEST, MAXIMUM, TOTAL, LISTED, FOUND = (tl.constexpr(place) for place in range(shared.NUMBERS_PER_LINE))
NUMBERS_PER_LINE = tl.constexpr(shared.NUMBERS_PER_LINE)
NO_LIMIT = tl.constexpr(-1.0)
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

    Programs of blocks read each line once, for the maximum and the sum of each tile. These tell a logit that the floor
    is not below; the few that are not below it either are set aside, and searched bit by bit. Where there are more
    than the workspace has room for, the line is searched itself, by a launch of its own.
    """
    limits = (a.temperature, a.top_k, a.top_p, a.num_drafts)
    check_flat(a.logits, *limits, a.floors, a.workspace)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_lines, num_tiles = num_rows * width, triton.cdiv(a.vocab_size, shared.TILE_SIZE)
    num_blocks = triton.cdiv(num_tiles, TILES_PER_BLOCK)
    room = a.workspace.numel() // num_lines - shared.NUMBERS_PER_TILE * num_tiles - shared.NUMBERS_PER_LINE
    assert room > 0, f"a workspace of {a.workspace.numel()} for {num_lines} lines of {num_tiles} tiles"
    assert a.logits.numel() == num_lines * a.logits_stride
    assert a.floors.numel() == num_lines
    maxima, sums, listed, numbers, candidates = _cut(a.workspace, num_lines, num_tiles)
    launch(_tiles_kernel, (num_lines * num_blocks,))(
        a.logits, *limits, maxima, sums,
        num_blocks, num_tiles, a.vocab_size, a.logits_stride, width,
        TILES_PER_BLOCK,
        num_warps=4,
    )  # fmt: skip
    launch(_bounds_kernel, (num_lines,))(
        *limits, maxima, sums, listed, numbers, a.floors,
        num_tiles, a.vocab_size, width,
        triton.next_power_of_2(num_tiles),
        num_warps=4,
    )  # fmt: skip
    launch(_candidates_kernel, (num_lines,))(
        a.logits, listed, numbers, candidates,
        room, num_tiles, a.vocab_size, a.logits_stride,
        TILES_PER_STEP,
        num_warps=16,
    )  # fmt: skip
    for is_whole, num_warps in ((False, 4), (True, 8)):
        launch(_floors_kernel, (num_lines,))(
            a.logits, *limits, numbers, candidates, a.floors,
            room, a.vocab_size, a.logits_stride, width,
            is_whole, SEARCHED_OF_LINES if is_whole else SEARCHED_AT_ONCE,
            num_warps=num_warps,
        )  # fmt: skip


def _cut(workspace: Tensor, num_lines: int, num_tiles: int) -> tuple[Tensor, ...]:
    """Return the maxima of tiles, their sums, the tiles that are listed, what is known of lines, the candidates."""
    of_tiles, of_lines = num_lines * num_tiles, num_lines * shared.NUMBERS_PER_LINE
    rest = workspace.numel() - 3 * of_tiles - of_lines
    return tuple(workspace.split([of_tiles, of_tiles, of_tiles, of_lines, rest]))


@triton.jit
def _limits(p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width):
    """Return the temperature of a line, its limits, and which of them hold: neither past the drafts, or at 0."""
    i_row = i_line // width
    temperature, num_drafts = tl.load(p_temperature + i_row), tl.load(p_num_drafts + i_row)
    top_k, top_p = tl.load(p_top_k + i_row), tl.load(p_top_p + i_row)
    is_limited = (temperature > 0) & (i_line % width <= num_drafts)
    return temperature, top_k, top_p, is_limited & (top_k > 0) & (top_k < vocab_size), is_limited & (top_p < 1)


@kernel("p_logits", "vocab_size", "logits_stride")
def _tiles_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_maxima, p_sums,
    num_blocks, num_tiles, vocab_size,
    logits_stride, width,
    TILES: tl.constexpr,
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


@kernel()
def _bounds_kernel(
    p_temperature, p_top_k, p_top_p, p_num_drafts, p_maxima, p_sums, p_listed, p_numbers, p_floors,
    num_tiles, vocab_size, width,
    TILES: tl.constexpr,
):  # fmt: skip
    """Find out of its tiles what is known of a line, and list those with a logit that is not below the bound."""
    i_line = tl.program_id(0).to(tl.int64)
    temperature, top_k, top_p, limits_k, limits_p = _limits(
        p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
    )
    p_numbers += i_line * NUMBERS_PER_LINE
    num_listed = NO_LIMIT
    if limits_k | limits_p:
        scale = scale_of(temperature)
        p_maxima, p_sums = p_maxima + i_line * num_tiles, p_sums + i_line * num_tiles
        o_tile = tl.arange(0, TILES)
        b_maxima = tl.load(p_maxima + o_tile, mask=o_tile < num_tiles, other=NEVER)
        b_is_nan = (b_maxima < float("inf")) == 0
        maximum = tl.max(tl.where(b_is_nan, NEVER, b_maxima), axis=0)
        is_undefined = tl.max(b_is_nan.to(tl.int32), axis=0)
        if (is_undefined == 0) & (maximum > NEVER):
            b_sums = tl.load(p_sums + o_tile, mask=o_tile < num_tiles, other=0.0)
            total = tl.sum(b_sums * weight(b_maxima, NEVER, maximum, scale), axis=0)
            key = _lowest_key()
            if limits_k:
                # So many tiles have a logit that is not below the one found, and so has the line.
                least = top_k.to(tl.float32)
                key = _largest_key(p_maxima, p_sums, num_tiles, key, least, maximum, scale, COUNTS, SEARCHED_AT_ONCE)
            else:
                least = top_p * total + ROUNDING * total
                key = _largest_key(
                    p_maxima, p_sums, num_tiles, key, least, maximum, scale, TILE_WEIGHTS, SEARCHED_AT_ONCE
                )
            # Without any bound there is nothing to set aside.
            lowest = _logit_of(key)
            is_listed = (o_tile < tl.where(lowest > NEVER, num_tiles, 0)) & (b_maxima >= lowest)
            b_place = tl.cumsum(is_listed.to(tl.int32), axis=0) - 1
            # As floats, which are exact for as many tiles as a vocabulary has.
            tl.store(p_listed + i_line * num_tiles + b_place, o_tile.to(tl.float32), mask=is_listed)
            num_listed = tl.sum(is_listed.to(tl.float32), axis=0)
            tl.store(p_numbers + LOWEST, lowest)
            tl.store(p_numbers + MAXIMUM, maximum)
            tl.store(p_numbers + TOTAL, total)
    tl.store(p_numbers + LISTED, num_listed)
    tl.store(p_floors + i_line, NEVER)


@kernel("p_logits", "vocab_size", "logits_stride")
def _candidates_kernel(
    p_logits, p_listed, p_numbers, p_candidates,
    room, num_tiles, vocab_size,
    logits_stride,
    TILES_PER_STEP: tl.constexpr,
):  # fmt: skip
    """Copy the logits of a line that are not below its bound, in their order, and count them.

    It ends where there is no more room, or no bound: then there are more than there is room for.
    """
    i_line = tl.program_id(0).to(tl.int64)
    p_numbers += i_line * NUMBERS_PER_LINE
    lowest, num_listed = tl.load(p_numbers + LOWEST), tl.load(p_numbers + LISTED).to(tl.int32)
    p_line, p_listed = p_logits + i_line * logits_stride, p_listed + i_line * num_tiles
    p_candidates += i_line * room
    count = tl.where(lowest > NEVER, 0, room + 1)
    for start in range(0, tl.where(lowest > NEVER, num_listed, 0), TILES_PER_STEP):
        if count <= room:
            o_listed = start + tl.arange(0, TILES_PER_STEP)
            is_listed = o_listed < num_listed
            b_tile = tl.load(p_listed + o_listed, mask=is_listed, other=0.0).to(tl.int32)
            b_token = b_tile[:, None] * TILE + tl.arange(0, TILE)[None, :]
            is_token = is_listed[:, None] & (b_token < vocab_size)
            b_logits = tl.load(p_line + b_token, mask=is_token, other=NEVER)
            b_is_one = (is_token & (b_logits >= lowest)).to(tl.int32)
            b_of_tile = tl.sum(b_is_one, axis=1)
            b_before = count + tl.cumsum(b_of_tile, axis=0) - b_of_tile
            b_place = b_before[:, None] + tl.cumsum(b_is_one, axis=1) - 1
            tl.store(p_candidates + b_place, b_logits, mask=(b_is_one > 0) & (b_place < room))
            count += tl.sum(b_of_tile, axis=0)
    tl.store(p_numbers + FOUND, count.to(tl.float32))


@kernel("p_logits", "vocab_size", "logits_stride")
def _floors_kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_numbers, p_candidates, p_floors,
    room, vocab_size,
    logits_stride, width,
    IS_WHOLE: tl.constexpr, SEARCHED: tl.constexpr,
):  # fmt: skip
    """Search the candidates of a line for its floor, or all of the line where there are more of them than room."""
    i_line = tl.program_id(0).to(tl.int64)
    p_numbers += i_line * NUMBERS_PER_LINE
    found = tl.load(p_numbers + FOUND).to(tl.int32)
    is_searched = found > room if IS_WHOLE else found <= room
    if is_searched & (tl.load(p_numbers + LISTED) != NO_LIMIT):
        temperature, top_k, top_p, limits_k, limits_p = _limits(
            p_temperature, p_top_k, p_top_p, p_num_drafts, i_line, vocab_size, width
        )
        scale, maximum, total = scale_of(temperature), tl.load(p_numbers + MAXIMUM), tl.load(p_numbers + TOTAL)
        if IS_WHOLE:
            p_searched, length = p_logits + i_line * logits_stride, vocab_size
        else:
            p_searched, length = p_candidates + i_line * room, found
        key = _lowest_key()
        if limits_k:
            least = top_k.to(tl.float32)
            key = _largest_key(p_searched, p_searched, length, key, least, maximum, scale, COUNTS, SEARCHED)
        if limits_p:
            if limits_k:
                total = _added(p_searched, p_searched, length, key, maximum, scale, WEIGHTS, SEARCHED)
            least = tl.maximum(top_p * total, LEAST_MASS)
            key = _largest_key(p_searched, p_searched, length, key, least, maximum, scale, WEIGHTS, SEARCHED)
        tl.store(p_floors + i_line, _logit_of(key))


@triton.jit
def _lowest_key():
    return tl.max(tl.full([1], LOWEST_KEY, dtype=tl.uint32), axis=0)


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
def _added(p_logits, p_sums, length, key, maximum, scale, ADDED: tl.constexpr, SEARCHED: tl.constexpr):
    """Return what logits with at least a key add up to: COUNTS or WEIGHTS.

    The logits may be the maxima of tiles: then TILE_WEIGHTS are what each tile has at least in logits with that key:
    its maximum, and its sum less that of as many of the largest others as it may have.
    """
    b_added = tl.zeros([SEARCHED], dtype=tl.float32)
    if ADDED == TILE_WEIGHTS:
        logit = _logit_of(key)
        below = (TILE - 1) * weight(tl.where(logit < maximum, logit, maximum), NEVER, maximum, scale)
    for start in range(0, length, SEARCHED):
        o_logit = start + tl.arange(0, SEARCHED)
        is_logit = o_logit < length
        b_logits = tl.load(p_logits + o_logit, mask=is_logit, other=NEVER)
        is_kept = is_logit & (_key_of(b_logits) >= key)
        if ADDED == COUNTS:
            b_added += is_kept.to(tl.float32)
        else:
            b_weight = weight(b_logits, NEVER, maximum, scale)
            if ADDED == TILE_WEIGHTS:
                b_sum = tl.load(p_sums + o_logit, mask=is_logit, other=0.0) * b_weight
                b_weight = tl.maximum(b_weight, b_sum - below)
            b_added += tl.where(is_kept, b_weight, 0.0)
    return tl.sum(b_added, axis=0)


@triton.jit
def _largest_key(
    p_logits, p_sums, length, key, least, maximum, scale, ADDED: tl.constexpr, SEARCHED: tl.constexpr
):  # fmt: skip
    """Return the largest key, not below `key`, whose logits add up to at least `least`; `key` if there is none."""
    found, bit = key * 0, key * 0 + 0x80000000
    for _ in range(32):
        added = _added(p_logits, p_sums, length, tl.maximum(found | bit, key), maximum, scale, ADDED, SEARCHED)
        found = tl.where(added >= least, found | bit, found)
        bit = bit >> 1
    return tl.maximum(found, key)
