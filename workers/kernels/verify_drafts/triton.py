"""Rejection sampler: which draft tokens are accepted, and the token that follows them."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import (
    NO_TOKEN,
    can_overlap,
    kernel,
    launch,
    length_unit,
    padded_columns,
    wait_for_others,
)
from workers.kernels.probabilities.triton import (
    NEVER,
    column_value,
    draft_logits,
    draft_probabilities,
    joint_ratios,
    largest,
    largest_of,
    pick,
    scale_of,
    scaled_probabilities,
    sums,
    weight,
    without,
)
from workers.kernels.verify_drafts import definition as shared
from workers.kernels.verify_drafts.definition import VerifyDrafts

STRICT = tl.constexpr(shared.STRICT)
STANDARD = tl.constexpr(shared.STANDARD)
SYNTHETIC = tl.constexpr(shared.SYNTHETIC)
TOGETHER = tl.constexpr(shared.BLOCK)
DRAFT_OUTSIDE_VOCABULARY = tl.constexpr(shared.DRAFT_OUTSIDE_VOCABULARY)
TARGET_UNDEFINED = tl.constexpr(shared.TARGET_UNDEFINED)
DRAFT_UNDEFINED = tl.constexpr(shared.DRAFT_UNDEFINED)
# Larger than any token.
LARGEST = tl.constexpr((1 << 31) - 1)
# Packs the index of a try and a token into one number, ordered by the try.
RANK = tl.constexpr(1 << 32)
# The arithmetic of a row takes most of the time: as many warps as tries, or half as many if there are no tries.
WARPS, WARPS_WITHOUT_TRIES = 16, 8
# Minimum sizes of a kernel's blocks, so that small vocabularies share one compiled kernel.
COLUMNS_MIN, BLOCKS_MIN, TILES_MIN, TILE_MIN = 16, 32, 32, 128


def verify_drafts(a: VerifyDrafts) -> None:
    """Launch one program per row, which computes all sampling attempts at once."""
    rows = (a.temperature, a.drafts, a.num_drafts, a.num_scheduled, a.invalid, a.point_mass, a.rates)
    stats = (a.block_max, a.block_sum, a.block_best, a.tile_sum, a.residual)
    distributions = (a.logits, a.draft_logits, a.draft_slots, a.floors)
    arguments = (*distributions, *rows, *stats, a.accept_noise, a.select_noise, a.sampled, a.status)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    num_blocks = triton.cdiv(a.vocab_size, a.block_size)
    assert a.select_noise.numel() == num_rows * width * (1 + a.num_tries) * 4
    assert a.sampled.numel() == num_rows * width
    num_tiles, tile_size = a.block_size // a.tile_size, a.tile_size
    is_large = num_tiles >= TILES_MIN and tile_size >= TILE_MIN
    columns, blocks = padded_columns(width), triton.next_power_of_2(num_blocks)
    if not is_large:
        columns, blocks = max(columns, COLUMNS_MIN), max(blocks, BLOCKS_MIN)
    entries = columns if a.method == shared.STRICT else padded_columns(a.num_tries)
    overlaps = can_overlap()
    unit = length_unit(a.vocab_size, a.logits_stride, a.draft_stride) if is_large else 1
    launch(_kernel, (num_rows,))(
        *arguments, num_rows, num_blocks, num_tiles, tile_size, a.vocab_size // unit,
        a.logits_stride // unit, a.draft_stride // unit, a.num_tries, width,
        a.method, columns, entries, blocks,
        max(num_tiles, TILES_MIN), max(tile_size, TILE_MIN), is_large, unit, overlaps,
        num_warps=WARPS if is_large and a.draft_logits.numel() else WARPS_WITHOUT_TRIES, launch_pdl=overlaps,
    )  # fmt: skip


@kernel("p_logits", "p_draft_logits")
def _kernel(
    p_logits, p_draft_logits, p_draft_slots, p_floors, p_temperature, p_drafts, p_num_drafts, p_num_scheduled,
    p_invalid, p_point_mass, p_rates, p_max, p_sum, p_best, p_tile_sum, p_residual, p_accept, p_select,
    p_sampled, p_status,
    num_rows, num_blocks, num_tiles, tile_size, vocab_size,
    logits_stride, draft_stride, num_tries, width,
    METHOD: tl.constexpr, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr,
    BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr, IS_LARGE: tl.constexpr, UNIT: tl.constexpr,
    OVERLAPS: tl.constexpr,
):  # fmt: skip
    vocab_size, logits_stride, draft_stride = vocab_size * UNIT, logits_stride * UNIT, draft_stride * UNIT
    if IS_LARGE:
        num_tiles, tile_size = TILES, TILE
    i_row, o_column = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    # Independent loads are issued together, because a small batch mostly waits for loads. They are volatile, because
    # the compiler would move them after the branches, to where they are needed.
    num_scheduled, invalid = _load_early(p_num_scheduled + i_row), _load_early(p_invalid + i_row)
    temperature, num_drafts = _load_early(p_temperature + i_row), _load_early(p_num_drafts + i_row)
    is_certain, slot, scale = (
        _load_early(p_point_mass + i_row) != 0,
        _load_early(p_draft_slots + i_row),
        scale_of(temperature),
    )
    o_draft, num_proposed = i_row * (width - 1) + o_column, tl.where(is_certain, 0, num_drafts)
    b_draft = tl.load(p_drafts + o_draft, mask=o_column < width - 1, other=NO_TOKEN, volatile=True)
    if (num_scheduled <= 0) | (invalid > 0):
        wait_for_others(OVERLAPS)
        tl.store(p_sampled + i_row * width + o_column, NO_TOKEN, mask=o_column < width)
        tl.store(p_status + i_row, 0)
        return
    b_draft, b_draft_undefined = tl.where(o_column < num_drafts, b_draft, NO_TOKEN), o_column < 0
    if temperature > 0:
        is_known, is_read, b_floor, b_logit, b_proposed = draft_logits(
            p_logits, p_draft_logits, p_floors, i_row, slot, b_draft, num_drafts, num_proposed, vocab_size,
            logits_stride, draft_stride, width, COLUMNS, OVERLAPS,
        )  # fmt: skip
        b_words = _words(p_select, i_row, num_tries, width, METHOD, COLUMNS, ENTRIES)
        (
            usable, b_noise, b_scaled_p, b_scaled_q, b_undefined, b_draft_undefined,
            b_mass, b_maximum, b_total, _b_draft_mass, b_draft_maximum, b_draft_total,
        ) = draft_probabilities(
            p_max, p_sum, p_accept, is_known, is_read, b_floor, b_logit, b_proposed,
            i_row, num_drafts, num_proposed, scale, num_rows, num_blocks, width, COLUMNS, BLOCKS,
        )  # fmt: skip
        joint_ratio, rejected = 1.0, usable < 0
        if METHOD == TOGETHER:
            b_joint_ratios = joint_ratios(b_scaled_p, b_scaled_q, COLUMNS)
            accepted = _accepted_together(
                p_residual, i_row, b_joint_ratios, b_noise, usable, num_blocks, width, COLUMNS, BLOCKS
            )
            joint_ratio, rejected = column_value(b_joint_ratios, o_column, accepted), accepted < usable
        elif METHOD == STRICT:
            b_token = _own_tokens(
                p_logits, p_floors, p_max, p_sum, p_tile_sum, b_words, i_row, num_drafts, scale,
                num_blocks, num_tiles, tile_size, vocab_size, logits_stride, width,
                ENTRIES, BLOCKS, TILES, TILE,
            )  # fmt: skip
            accepted = _leading(b_draft == b_token, o_column, usable)
            last = column_value(b_token, o_column, accepted).to(tl.int64)
        elif METHOD == SYNTHETIC:
            accepted = _leading(b_noise < _rates(p_rates, o_column, width), o_column, usable)
        else:
            accepted = _leading(b_noise * b_scaled_q < b_scaled_p, o_column, usable)
            rejected = accepted < usable
        if METHOD != STRICT:
            last = _token_after_kept(
                p_logits, p_draft_logits, slot, p_floors, p_drafts, p_max, p_tile_sum, p_select, b_words,
                i_row, accepted, rejected, is_certain, joint_ratio, scale,
                column_value(b_mass, o_column[:, None], accepted),
                column_value(b_maximum, o_column, accepted), column_value(b_total, o_column, accepted),
                column_value(b_draft_maximum, o_column, accepted), column_value(b_draft_total, o_column, accepted),
                num_blocks, num_tiles, tile_size, vocab_size, logits_stride, draft_stride, num_tries, width,
                ENTRIES, BLOCKS, TILES, TILE,
            )  # fmt: skip
    else:
        wait_for_others(OVERLAPS)
        b_best, b_undefined = _best(p_max, p_best, i_row, o_column, num_blocks, width, BLOCKS)
        b_kept = b_draft == b_best
        if METHOD == SYNTHETIC:
            b_noise = tl.load(p_accept + o_draft, mask=o_column < width - 1, other=1.0)
            b_kept = b_noise < _rates(p_rates, o_column, width)
        b_kept &= (b_draft >= 0) & (b_draft < vocab_size) & (b_undefined == 0)
        accepted = _leading(b_kept, o_column, num_drafts)
        last = column_value(b_best, o_column, accepted).to(tl.int64)
    undefined = tl.max(((o_column == accepted) & b_undefined).to(tl.int32), axis=0)
    b_sampled = tl.where(o_column < accepted, b_draft, tl.where(undefined > 0, NO_TOKEN, last))
    b_sampled = tl.where(o_column <= accepted, b_sampled, NO_TOKEN)
    tl.store(p_sampled + i_row * width + o_column, b_sampled, mask=o_column < width)
    b_outside = (o_column < num_drafts) & ((b_draft < NO_TOKEN) | (b_draft >= vocab_size))
    tl.store(p_status + i_row, _status(b_outside, undefined, b_draft_undefined).to(tl.int64))


@triton.jit
def _load_early(pointer):
    return tl.load(pointer, volatile=True)


@triton.jit
def _status(b_outside, target_undefined, b_draft_undefined):
    status = tl.max(b_outside.to(tl.int32), axis=0) * DRAFT_OUTSIDE_VOCABULARY + target_undefined * TARGET_UNDEFINED
    return status + tl.max(b_draft_undefined.to(tl.int32), axis=0) * DRAFT_UNDEFINED


@triton.jit
def _leading(b_kept, o_column, usable):
    """Return the number of verifiable draft tokens before the first rejected one."""
    return tl.min(tl.where(b_kept & (o_column < usable), usable, tl.minimum(o_column, usable)), axis=0)


@triton.jit
def _rates(p_rates, o_column, width):
    return tl.load(p_rates + o_column, mask=o_column < width - 1, other=0.0)


@triton.jit
def _accepted_together(
    p_residual, i_row, b_joint_ratios, b_noise, usable, num_blocks, width,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Return how many draft tokens block verification accepts."""
    o_column, o_block = tl.arange(0, COLUMNS), tl.arange(0, BLOCKS)
    is_left = ((o_column > 0) & (o_column < usable))[:, None] & (o_block < num_blocks)[None, :]
    o_left = (i_row * (width - 1) + o_column)[:, None] * num_blocks + o_block[None, :]
    b_residual = tl.sum(tl.load(p_residual + o_left, mask=is_left, other=0.0), axis=1)
    accepted = usable * 0
    for i in tl.static_range(1, COLUMNS):
        noise = column_value(b_noise, o_column, i - 1)
        left, joint_ratio = column_value(b_residual, o_column, i), column_value(b_joint_ratios, o_column, i)
        kept = tl.where(i < usable, noise * (left + 1 - joint_ratio) < left, noise < joint_ratio)
        accepted = tl.where(kept & (i <= usable), i, accepted)
    return accepted


@triton.jit
def _best(p_max, p_best, i_row, o_column, num_blocks, width, BLOCKS: tl.constexpr):
    """Return each column's token with the largest logit (lowest id), and if it is undefined.

    The result is undefined for a column past the draft tokens.
    """
    o_block = tl.arange(0, BLOCKS)
    is_block = (o_column < width)[:, None] & (o_block < num_blocks)[None, :]
    o_stats = (i_row * width + o_column)[:, None] * num_blocks + o_block[None, :]
    b_max = tl.load(p_max + o_stats, mask=is_block, other=NEVER)
    b_index = tl.load(p_best + o_stats, mask=is_block, other=0).to(tl.int32)
    b_maximum, b_undefined = largest(b_max)
    b_is_best = is_block & (b_max == b_maximum[:, None])
    return tl.min(tl.where(b_is_best, b_index, LARGEST), axis=1), b_undefined


@triton.jit
def _words(p_select, i_row, num_tries, width, METHOD: tl.constexpr, COLUMNS: tl.constexpr, ENTRIES: tl.constexpr):
    """Load the random numbers of each sampling attempt as bits: four numbers per column.

    It is loaded before the column is known.
    """
    WORDS: tl.constexpr = 32 if COLUMNS < 8 else 4 * COLUMNS
    o_try, o_word = tl.arange(0, ENTRIES)[:, None], tl.arange(0, WORDS)[None, :]
    if METHOD == STRICT:
        # An entry is a column; there are no tries.
        o_try *= 0
    p_words = p_select + ((i_row * width + o_word // 4) * (1 + num_tries) + o_try) * 4 + o_word % 4
    is_word = (o_try < tl.maximum(num_tries, 1)) & (o_word < width * 4)
    return tl.load(p_words, mask=is_word, other=0.0, volatile=True).to(tl.int32, bitcast=True)


@triton.jit
def _for_each(b_mass, num_blocks, BLOCKS: tl.constexpr, ENTRIES: tl.constexpr):
    """Broadcast the block masses of one row of logits to ENTRIES entries.

    There are at least as many values per entry as a warp has threads, so that each entry stays within one warp.
    """
    COPIES: tl.constexpr = 32 // BLOCKS if BLOCKS < 32 else 1
    b_lanes = tl.reshape(tl.broadcast_to(b_mass[None, :], [COPIES, BLOCKS]), [COPIES * BLOCKS])
    b_lanes = tl.where(tl.arange(0, COPIES * BLOCKS) < num_blocks, b_lanes, 0.0)
    return tl.broadcast_to(b_lanes[None, :], [ENTRIES, COPIES * BLOCKS])


@triton.jit
def _number(b_words, index):
    """Return one random number per row of loaded bits.

    No number is negative, so integer order equals float order.
    """
    o_word = tl.arange(0, b_words.shape[1])
    b_one = tl.max(tl.where(o_word[None, :] == index, b_words, 0), axis=1)
    return b_one.to(tl.float32, bitcast=True)


@triton.jit
def _select(
    p_logits, p_max, p_tile_sum, b_line, is_entry, b_floor, b_mass, b_words, i_word,
    excluded, of_tile, scale, num_blocks, num_tiles, tile_size, vocab_size, logits_stride,
    TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sample one token per entry from the target's distribution.

    The noise starts at word `i_word` of each entry.

    `b_mass` are the block masses of each row of logits. One token may be excluded; `of_tile` is then the sum of its
    tile without it, and b_mass excludes it. The excluded token is returned only if there is no other.
    """
    # A warp loads all data of its entries itself, some of it repeatedly, so that it waits for no other warp.
    o_block, o_tile, o_token = tl.arange(0, b_mass.shape[1]), tl.arange(0, TILES), tl.arange(0, TILE)
    block_size = num_tiles * tile_size
    # Loads all blocks, which is faster than waiting for the choice and loading one.
    is_block = is_entry[:, None] & (o_block < num_blocks)[None, :]
    b_max = tl.load(p_max + b_line[:, None] * num_blocks + o_block[None, :], mask=is_block, other=NEVER)
    b_block = pick(b_mass, _number(b_words, i_word))
    p_tiles = p_tile_sum + (b_line * num_blocks + b_block) * num_tiles
    is_tile = is_entry[:, None] & (o_tile < num_tiles)[None, :]
    b_tiles = tl.load(p_tiles[:, None] + o_tile[None, :], mask=is_tile, other=0.0)
    b_block_max = largest_of(tl.where(o_block[None, :] == b_block[:, None], b_max, NEVER), 1)
    b_block_max = tl.where(b_block_max > NEVER, b_block_max, 0.0)
    b_start = b_block[:, None] * block_size + o_tile[None, :] * tile_size
    is_short = is_tile & (b_start <= excluded) & (excluded < b_start + tile_size)
    b_tile = pick(tl.where(is_short, of_tile, b_tiles), _number(b_words, i_word + 1))
    b_first = b_block * block_size + b_tile * tile_size
    b_length = tl.where(is_entry, tl.minimum(tile_size, vocab_size - b_first), 0)
    p_first = p_logits + b_line * logits_stride + b_first
    b_logits = tl.load(p_first[:, None] + o_token[None, :], mask=o_token[None, :] < b_length[:, None], other=NEVER)
    b_weight = weight(b_logits, b_floor, b_block_max[:, None], scale)
    b_weight = tl.where(o_token[None, :] == (excluded - b_first)[:, None], 0.0, b_weight)
    b_selected = b_first + pick(b_weight, _number(b_words, i_word + 2))
    return tl.where(tl.sum(b_mass, axis=1) > 0, b_selected, excluded)


@triton.jit
def _own_tokens(
    p_logits, p_floors, p_max, p_sum, p_tile_sum, b_words, i_row, num_drafts, scale,
    num_blocks, num_tiles, tile_size, vocab_size, logits_stride, width,
    ENTRIES: tl.constexpr, BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Return the token that each column samples from the target with its random numbers."""
    LANES: tl.constexpr = 32 if BLOCKS < 32 else BLOCKS
    o_column = tl.arange(0, ENTRIES)
    b_line, is_entry = i_row * width + o_column, o_column <= num_drafts
    b_floor = tl.load(p_floors + b_line, mask=is_entry, other=NEVER)
    _b_max, b_mass, _b_maximum, _b_total, b_undefined = sums(p_max, p_sum, b_line, is_entry, scale, num_blocks, LANES)
    return _select(
        p_logits, p_max, p_tile_sum, b_line, is_entry & (b_undefined == 0), b_floor[:, None], b_mass, b_words,
        (o_column * 4)[:, None], -1, 0.0, scale, num_blocks, num_tiles, tile_size, vocab_size, logits_stride,
        TILES, TILE,
    )  # fmt: skip


@triton.jit
def _token_after_kept(
    p_logits, p_draft_logits, slot, p_floors, p_drafts, p_max, p_tile_sum, p_select, b_words,
    i_row, column, is_rejected, is_certain, joint_ratio, scale, b_mass, maximum, total, draft_maximum, draft_total,
    num_blocks, num_tiles, tile_size, vocab_size, logits_stride, draft_stride, num_tries, width,
    ENTRIES: tl.constexpr, BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sample the recovered or bonus token of the column after the accepted draft tokens.

    From p if it has none.
    """
    i_line, i_draft = i_row * width + column, i_row * (width - 1) + column
    p_line = p_logits + i_line * logits_stride
    p_draft_line = p_draft_logits + (slot * (width - 1) + column) * draft_stride
    floor = tl.load(p_floors + i_line)
    # The residual of a point mass is every other token.
    excluded, of_tile = (column * 0 - 1).to(tl.int32), 0.0
    if is_rejected & is_certain:
        excluded = tl.load(p_drafts + i_draft).to(tl.int32)
        of_tile, of_block, i_block = without(
            p_logits, p_floors, p_max, p_tile_sum, i_line, excluded, maximum, scale, num_blocks, num_tiles, tile_size,
            vocab_size, logits_stride, TILES, TILE,
        )  # fmt: skip
        b_mass = tl.where(tl.arange(0, BLOCKS) == i_block, of_block, b_mass)
    o_try = tl.arange(0, ENTRIES)
    is_tried = is_rejected & (is_certain == 0)
    # The first entry is needed if no try is kept and the residual is 0, even without tries.
    is_entry = o_try < tl.where(is_tried, tl.maximum(num_tries, 1), 1)
    i_word = column.to(tl.int32) * 4
    b_token = _select(
        p_logits, p_max, p_tile_sum, i_line + 0 * o_try, is_entry, floor,
        _for_each(b_mass, num_blocks, BLOCKS, ENTRIES), b_words, i_word, excluded, of_tile, scale,
        num_blocks, num_tiles, tile_size, vocab_size, logits_stride, TILES, TILE,
    )  # fmt: skip
    is_tried_entry = o_try < tl.where(is_tried, num_tries, 0)
    b_target, b_draft = scaled_probabilities(
        p_line,
        p_draft_line,
        b_token,
        is_tried_entry,
        floor,
        joint_ratio,
        maximum,
        total,
        draft_maximum,
        draft_total,
        scale,
    )
    b_kept = is_tried_entry & (_number(b_words, i_word + 3) * b_target < b_target - b_draft)
    # The first try that is kept, or else the first try: rank and token in one number.
    b_rank = tl.where(b_kept, o_try, ENTRIES + o_try).to(tl.int64)
    first = tl.min(b_rank * RANK + b_token, axis=0)
    token = first % RANK
    if is_tried & (first >= ENTRIES * RANK):
        p_noise = p_select + (i_line * (1 + num_tries) + num_tries) * 4
        found, left = _select_from_residual(
            p_line, p_draft_line, p_noise, floor, joint_ratio, maximum, total, draft_maximum, draft_total,
            scale, num_blocks, num_tiles, tile_size, vocab_size, BLOCKS, TILES, TILE,
        )  # fmt: skip
        # Without any residual, the draft token was rejected by rounding alone.
        token = tl.where(left > 0, found, token)
    return token


@triton.jit
def _select_from_residual(
    p_line, p_draft_line, p_noise, floor, joint_ratio, maximum, total, draft_maximum, draft_total, scale,
    num_blocks, num_tiles, tile_size, vocab_size,
    BLOCKS: tl.constexpr, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sample a token from the residual of the whole row; also return the residual's sum.

    Its tile is sampled first, then its place in the tile, then its block, so that one pass over the row keeps all sums
    in registers.
    """
    o_tile, o_token = tl.arange(0, TILES), tl.arange(0, TILE)
    block_size = num_tiles * tile_size
    b_first = o_tile[:, None] * tile_size + o_token[None, :]
    is_place = (o_tile < num_tiles)[:, None] & (o_token < tile_size)[None, :]
    b_residual = tl.zeros([TILES, TILE], dtype=tl.float32)
    for i_block in range(num_blocks):
        b_token = b_first + i_block * block_size
        b_target, b_draft = scaled_probabilities(
            p_line, p_draft_line, b_token, is_place & (b_token < vocab_size), floor, joint_ratio,
            maximum, total, draft_maximum, draft_total, scale,
        )  # fmt: skip
        b_residual += tl.maximum(b_target - b_draft, 0.0)
    o_one = tl.arange(0, 1)
    b_of_tiles = tl.sum(b_residual, axis=1)
    tile = tl.sum(pick(b_of_tiles[None, :], tl.load(p_noise + 1 + o_one)), axis=0)
    b_of_tile = tl.sum(tl.where((o_tile == tile)[:, None], b_residual, 0.0), axis=0)
    place = tile * tile_size + tl.sum(pick(b_of_tile[None, :], tl.load(p_noise + 2 + o_one)), axis=0)
    b_same = tl.arange(0, BLOCKS) * block_size + place
    b_scaled_p, b_scaled_q = scaled_probabilities(
        p_line, p_draft_line, b_same, b_same < vocab_size, floor, joint_ratio,
        maximum, total, draft_maximum, draft_total, scale,
    )  # fmt: skip
    b_mass = tl.maximum(b_scaled_p - b_scaled_q, 0.0)
    block = tl.sum(pick(b_mass[None, :], tl.load(p_noise + o_one)), axis=0)
    return (block * block_size + place).to(tl.int64), tl.sum(b_of_tiles, axis=0)
