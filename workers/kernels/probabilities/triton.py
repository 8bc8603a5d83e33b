"""Weights (unnormalised probabilities) of tokens, in blocks and tiles of the vocabulary.

See `definition`.
"""

import triton
import triton.language as tl

from workers.kernels.launch.triton import wait_for_others
from workers.kernels.probabilities import numpy as shared

LOG2E = tl.constexpr(float(shared.LOG2E))
NEVER = tl.constexpr(float("-inf"))
_LARGEST = tl.constexpr((1 << 31) - 1)
_MOST = tl.constexpr(3.4028234663852886e38)


@triton.jit
def scale_of(temperature):
    is_random = temperature > 0
    divisor = tl.where(is_random, temperature, 1.0)
    return tl.where(is_random, tl.div_rn(divisor * 0 + LOG2E, divisor), 1.0)


@triton.jit
def weight(b_logits, b_floor, b_maximum, b_scale):
    """Return unnormalised probabilities of logits, relative to a maximum; 0 below the floor."""
    return tl.exp2((tl.where(b_logits >= b_floor, b_logits, NEVER) - b_maximum) * b_scale)


@triton.jit
def load_block(p_line, first, end, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Return the logits of a vocabulary block that begins at token `first`, by tile.

    -inf from token `end` on.
    """
    o_tile = first + tl.arange(0, BLOCK // TILE) * TILE
    b_token = o_tile[:, None] + tl.arange(0, TILE)[None, :]
    # Nearly every block is complete, and a mask costs as much as the arithmetic. Logits that are read only once should
    # not evict data that is read again.
    if first + BLOCK <= end:
        b_logits = tl.load(p_line + b_token, eviction_policy="evict_first")
    else:
        b_logits = tl.load(p_line + b_token, mask=b_token < end, other=NEVER, eviction_policy="evict_first")
    return b_logits


@triton.jit
def pick(b_masses, b_noise):
    """Return, per row, the first index whose running sum of masses exceeds noise * total.

    One row of masses may be used with many noises.
    """
    size: tl.constexpr = b_masses.shape[1]
    o_index = tl.arange(0, size)[None, :]
    # A running sum over one element does not compile for a GPU in Triton 3.6.
    b_running = b_masses if size == 1 else tl.cumsum(b_masses, axis=1)
    b_passed = b_running > (b_noise * tl.sum(b_masses, axis=1))[:, None]
    # Rounding may leave the running sum below the total: then use the last index with mass, found by reversed indexes.
    b_place = tl.where(b_passed, o_index, 2 * size - 1 - o_index)
    b_first = tl.min(tl.where(b_masses > 0, b_place, 2 * size - 1), axis=1)
    return tl.where(b_first < size, b_first, 2 * size - 1 - b_first)


@triton.jit
def sums(p_max, p_sum, b_line, is_line, scale, num_blocks, BLOCKS: tl.constexpr):
    """Return, per row of logits: block maxima, block masses, maximum and total.


    Also return whether each row is undefined.

    Shapes: [N, BLOCKS] for [N] rows of logits; masses are relative to the maximum of the row.
    """
    o_block = tl.arange(0, BLOCKS)
    is_block = is_line[:, None] & (o_block < num_blocks)[None, :]
    o_stats = b_line[:, None] * num_blocks + o_block[None, :]
    b_max = tl.load(p_max + o_stats, mask=is_block, other=NEVER)
    b_sum = tl.load(p_sum + o_stats, mask=is_block, other=0.0)
    b_maximum, b_undefined = largest(b_max)
    b_maximum = tl.where(b_undefined, 0.0, b_maximum)
    b_max = tl.where(b_undefined[:, None], NEVER, b_max)
    b_factor = weight(b_max, NEVER, b_maximum[:, None], scale)
    b_mass = tl.where(b_factor > 0, b_sum, 0.0) * b_factor
    b_total = tl.where(b_undefined, 1.0, tl.sum(b_mass, axis=1))
    return b_max, b_mass, b_maximum, b_total, b_undefined


@triton.jit
def largest_of(b_numbers, axis: tl.constexpr):
    """Return the largest of float32 numbers, compared as integers.

    A warp compares integers in one instruction.

    NaN is the largest, or is ignored.
    """
    b_order = _in_order(b_numbers.to(tl.int32, bitcast=True))
    return _in_order(tl.max(b_order, axis=axis)).to(tl.float32, bitcast=True)


@triton.jit
def _in_order(b_bits):
    """Map float bits to integers with the same order as the floats.

    The function is its own inverse.
    """
    # The larger the bits of a negative number, the smaller the number; the sign bit stays.
    return b_bits ^ ((b_bits >> 31) & _LARGEST)


@triton.jit
def largest(b_max):
    """Return each row's maximum, and whether the row defines no distribution.

    Undefined: some are NaN or inf, or all are -inf.
    """
    b_maximum = largest_of(tl.where(b_max < float("inf"), b_max, float("inf")), 1)
    return b_maximum, (b_maximum == float("inf")) | (b_maximum == NEVER)


@triton.jit
def draft_logits(
    p_logits, p_draft_logits, p_floors, i_row, slot, b_draft, num_drafts, num_proposed, vocab_size,
    logits_stride, draft_stride, width,
    COLUMNS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Load the logits of a row's draft tokens (target and draft), with floors and validity.

    `b_draft` holds one value per column, including columns without a draft token. `num_proposed` is the number of draft
    tokens that should have draft logits: all or none. Then waits for the kernel that adds up blocks, which takes most
    of the time.
    """
    o_column = tl.arange(0, COLUMNS).to(tl.int64)
    b_line = i_row * width + o_column
    is_known = (o_column < num_drafts) & (b_draft >= 0) & (b_draft < vocab_size)
    b_floor = tl.load(p_floors + b_line, mask=is_known, other=NEVER)
    b_logit = tl.load(p_logits + b_line * logits_stride + b_draft, mask=is_known, other=NEVER)
    p_line = p_draft_logits + (slot * (width - 1) + o_column) * draft_stride
    is_read = o_column < tl.where(slot >= 0, num_proposed, 0)
    b_proposed = tl.load(p_line + b_draft, mask=is_known & is_read, other=NEVER)
    wait_for_others(OVERLAPS)
    return is_known, is_read, b_floor, b_logit, b_proposed


@triton.jit
def draft_probabilities(
    p_max, p_sum, p_accept, is_known, is_read, b_floor, b_logit, b_proposed,
    i_row, num_drafts, num_proposed, scale, num_rows, num_blocks, width,
    COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Return how many draft tokens are verifiable, and each one's noise, p and q.

    p is the token's target probability, q its draft probability, both on one scale.

    Takes the results of `draft_logits`.

    Returns usable; then for every column its noise, its p and q on one scale, whether target and draft are undefined;
    then block masses, maximum and total of the target, and the same of the draft: 0, 0 and 1 if it has no logits.
    """
    o_column = tl.arange(0, COLUMNS).to(tl.int64)
    b_target_line, b_draft_line = i_row * width + o_column, i_row * (width - 1) + o_column
    offset = num_rows.to(tl.int64) * width * num_blocks
    b_noise = tl.load(p_accept + b_draft_line, mask=o_column < width - 1, other=1.0)
    _, b_mass, b_maximum, b_total, b_undefined = sums(
        p_max, p_sum, b_target_line, (o_column < width) & (o_column <= num_drafts), scale, num_blocks, BLOCKS
    )
    _, b_draft_mass, b_draft_maximum, b_draft_total, b_draft_undefined = sums(
        p_max + offset, p_sum + offset, b_draft_line, is_read, scale, num_blocks, BLOCKS
    )
    is_proposed = o_column < num_proposed
    b_draft_undefined = b_draft_undefined & is_known & is_proposed
    fits = is_known & (b_undefined == 0) & (b_draft_undefined == 0)
    usable = tl.min(tl.where(fits, width - 1, tl.minimum(o_column, width - 1)), axis=0)
    b_scaled_p = tl.where(fits, weight(b_logit, b_floor, b_maximum, scale) * b_draft_total, 0.0)
    b_draft_weight = tl.where(fits & is_proposed, weight(b_proposed, NEVER, b_draft_maximum, scale), 1.0)
    return (
        usable, b_noise, b_scaled_p, b_draft_weight * b_total, b_undefined, b_draft_undefined,
        b_mass, b_maximum, b_total, b_draft_mass, b_draft_maximum, b_draft_total,
    )  # fmt: skip


@triton.jit
def without(
    p_logits, p_floors, p_max, p_tile_sum, i_line, excluded, line_maximum, scale, num_blocks, num_tiles, tile_size,
    vocab_size, logits_stride, TILES: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Return the sums of a tile and a block without the token `excluded`, and the block's index.

    Both are added up again, because a difference would lose small weights.
    """
    i_tile = excluded.to(tl.int32) // tile_size
    i_block, i_tile = i_tile // num_tiles, i_tile % num_tiles
    o_token = (i_block * num_tiles + i_tile) * tile_size + tl.arange(0, TILE)
    is_token = (tl.arange(0, TILE) < tile_size) & (o_token < vocab_size)
    b_logits = tl.load(p_logits + i_line * logits_stride + o_token, mask=is_token, other=NEVER)
    block_maximum = tl.load(p_max + i_line * num_blocks + i_block)
    maximum = tl.where(block_maximum > NEVER, block_maximum, 0.0)
    b_weight = weight(b_logits, tl.load(p_floors + i_line), maximum, scale)
    of_tile = tl.sum(tl.where(o_token == excluded, 0.0, b_weight), axis=0)
    o_tile = tl.arange(0, TILES)
    p_tiles = p_tile_sum + (i_line * num_blocks + i_block) * num_tiles
    b_tiles = tl.load(p_tiles + o_tile, mask=o_tile < num_tiles, other=0.0)
    of_block = tl.sum(tl.where(o_tile == i_tile, of_tile, b_tiles), axis=0)
    return of_tile, of_block * weight(block_maximum, NEVER, line_maximum, scale), i_block


@triton.jit
def scaled_probabilities(
    p_line, p_draft_line, b_token, is_token, floor, joint_ratio, maximum, total, draft_maximum, draft_total, scale
):  # fmt: skip
    """Return `joint_ratio` times each token's target probability, and its draft probability."""
    b_logits = tl.load(p_line + b_token, mask=is_token, other=NEVER)
    b_proposed = tl.load(p_draft_line + b_token, mask=is_token, other=NEVER)
    b_target = joint_ratio * weight(b_logits, floor, maximum, scale) * draft_total
    return b_target, weight(b_proposed, NEVER, draft_maximum, scale) * total


@triton.jit
def column_value(b_values, o_column, column):
    """Return the value of one column."""
    return tl.sum(tl.where(o_column == column, b_values, 0), axis=0)


@triton.jit
def joint_ratios(b_scaled_p, b_scaled_q, COLUMNS: tl.constexpr):
    """Return block verification's ratios: r[0] = 1, r[i] = min(1, r[i - 1] * p / q).

    1 for zero draft tokens.
    """
    o_column = tl.arange(0, COLUMNS)
    b_joint_ratios = tl.full([COLUMNS], 1.0, dtype=tl.float32)
    joint_ratio = tl.sum(tl.where(o_column == 0, b_joint_ratios, 0.0), axis=0)
    for i in tl.static_range(COLUMNS - 1):
        product = joint_ratio * tl.sum(tl.where(o_column == i, b_scaled_p, 0.0), axis=0)
        divisor = tl.sum(tl.where(o_column == i, b_scaled_q, 0.0), axis=0)
        quotient = tl.div_rn(product, tl.where(divisor > 0, divisor, 1.0))
        quotient = tl.where(divisor > 0, quotient, tl.where(product > 0, _MOST, 0.0))
        joint_ratio = tl.minimum(quotient, 1.0)
        b_joint_ratios = tl.where(o_column == i + 1, joint_ratio, b_joint_ratios)
    return b_joint_ratios
