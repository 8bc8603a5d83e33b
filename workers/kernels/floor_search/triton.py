"""Search for a row's floor: the lowest logit (as an integer key) that top-k and top-p keep."""

import triton
import triton.language as tl

from workers.kernels.logit_blocks.triton import block, fetch, store_candidates
from workers.kernels.logit_keys.triton import BITS, STEPS, VALUES, key_of, largest_key, logit_of, lowest_key
from workers.kernels.logit_samples.triton import LEAST, interval
from workers.kernels.probabilities.triton import NEVER, weight

# The mass of a kept logit is never below this; other logits have mass 0.
LEAST_MASS = tl.constexpr(1.1754943508222875e-38)
# Logits that are read at once from a row that does not fit into a program.
READ_AT_ONCE = tl.constexpr(4096)
# Times that a row is read again to narrow the interval.
TRIES = tl.constexpr(3)


@triton.jit
def floor_key(b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale):
    """Return the key of the lowest logit that top-k and top-p keep, and whether it was found.

    These are all logits of the row in [lowest, highest).

    `above` is the mass of the logits from `highest` on.
    """
    # Keys are relative to the first key, so that their search takes few steps.
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
def floor_key_of_candidates(
    p_counts, p_candidates, num_blocks, lowest, highest, is_all,
    top_k, top_p, limits_k, limits_p, maximum, total, above, scale,
    CANDIDATES: tl.constexpr, ROOM: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """Run `floor_key` on the stored candidates of all blocks, at most PART of the capacity."""
    b_logits = fetch(p_counts, p_candidates, num_blocks, CANDIDATES // PART, ROOM, ROOM // PART)
    return floor_key(b_logits, lowest, highest, is_all, top_k, top_p, limits_k, limits_p, maximum, total, above, scale)


@triton.jit
def _sum_of_threads(b_masses):
    return tl.sum(tl.sum(b_masses, axis=2), axis=1)


@triton.jit
def floor_key_of_intervals(
    p_line, p_counts, p_candidates, num_blocks, vocab_size, top_p, maximum, total, scale,
    start, end, above, mass, wide,
    CANDIDATES: tl.constexpr, ROOM: tl.constexpr, SAMPLE: tl.constexpr, GROUP: tl.constexpr,
    TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Return the key of the lowest logit that top-p keeps, in [start, end), and whether found.

    `above` is the mass of the logits from `end` on, `mass` that in [start, end). The row is read once per try.
    """
    least = tl.maximum(top_p * total, LEAST_MASS)
    lowest, highest, top, is_aside, is_one = start, end, start, False, False
    for i_try in range(TRIES):
        if (is_aside | is_one) == 0:
            share = (least - above) / mass
            lowest, highest, _rank = interval(
                p_line, vocab_size, start, end, share, scale, wide >> i_try, SAMPLE, GROUP, 1
            )
            lowest = tl.maximum(lowest, LEAST)
            b_above, b_from = tl.zeros([THREADS], dtype=tl.float32), tl.zeros([THREADS], dtype=tl.float32)
            b_top, b_bottom, most = b_above + NEVER, b_above + float("inf"), 0
            b_next = block(p_line, 0, num_blocks, vocab_size, TILES, TILE, THREADS)
            for i_block in range(num_blocks):
                b_logits, i_next = b_next, tl.minimum(i_block + 1, num_blocks - 1)
                # Prefetch the next block while this one is searched.
                b_next = block(p_line, i_next, num_blocks, vocab_size, TILES, TILE, THREADS)
                b_weights = weight(b_logits, lowest, maximum, scale)
                b_above += _sum_of_threads(tl.where(b_logits >= highest, b_weights, 0.0))
                b_from += _sum_of_threads(b_weights)
                b_logits = tl.where(b_logits < highest, b_logits, NEVER)
                b_top = tl.maximum(b_top, tl.max(tl.max(b_logits, axis=2), axis=1))
                b_others = tl.where(b_logits >= lowest, b_logits, float("inf"))
                b_bottom = tl.minimum(b_bottom, tl.min(tl.min(b_others, axis=2), axis=1))
                p_room = p_candidates + i_block * ROOM
                count = store_candidates(b_logits, lowest, p_line, p_room, i_block, num_blocks, ROOM, TILE, THREADS)
                tl.store(p_counts + i_block, count.to(tl.float32))
                most = tl.maximum(most, count)
            tl.debug_barrier()
            above_highest, above_lowest, top = tl.sum(b_above), tl.sum(b_from), tl.max(b_top)
            if above_highest >= least:
                start, mass = highest, above_highest - above
            elif above_lowest < least:
                end, mass, above = lowest, above + mass - above_lowest, above_lowest
            else:
                start, end, mass, above = lowest, highest, above_lowest - above_highest, above_highest
                is_aside, is_one = most <= ROOM, top == tl.min(b_bottom)
    key, is_found = key_of(top), is_one
    if is_aside:
        key, is_found = floor_key_of_candidates(
            p_counts, p_candidates, num_blocks, lowest, highest, False,
            0, top_p, False, True, maximum, total, above, scale, CANDIDATES, ROOM, 1,
        )  # fmt: skip
    return key, is_found


@triton.jit
def _largest_key_of_line(p_line, vocab_size, key, least, maximum, scale, WEIGHS: tl.constexpr):
    """Search a whole row like `largest_key`, reading it again for each step of the search.

    Masses are counts or weights.
    """
    found, b_digit = key * 0, tl.arange(0, VALUES).to(tl.uint32) << (32 - BITS)
    for _ in range(STEPS):
        b_next = found | b_digit
        b_added = tl.zeros([VALUES, READ_AT_ONCE], dtype=tl.float32)
        for start in range(0, vocab_size, READ_AT_ONCE):
            o_token = start + tl.arange(0, READ_AT_ONCE)[None, :]
            b_logits = tl.load(p_line + o_token, mask=o_token < vocab_size, other=NEVER)
            b_keys = key_of(b_logits)
            b_masses = weight(b_logits, NEVER, maximum, scale) if WEIGHS else (b_logits > NEVER).to(tl.float32)
            b_added += tl.where(b_keys >= tl.maximum(b_next, key)[:, None], b_masses, 0.0)
        found = tl.max(tl.where(tl.sum(b_added, axis=1) >= least, b_next, found), axis=0)
        b_digit = b_digit >> BITS
    return tl.maximum(found, key)


@triton.jit
def floor_key_of_line(p_line, vocab_size, top_k, top_p, limits_k, limits_p, maximum, total, scale):
    """Return the key of the lowest logit that top-k and top-p keep, from the whole row."""
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
