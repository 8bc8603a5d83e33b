"""Samples of a row of logits, and an estimate of the row's top-p floor from them."""

import triton
import triton.language as tl

from workers.kernels.probabilities.triton import NEVER, weight

# Steps of the search in a sample; each narrows the range to a quarter.
STEPS = tl.constexpr(6)
# Logits this many powers of two lighter than the largest do not matter.
FAR = tl.constexpr(40.0)
# Logits are assumed to be evenly spread in this fraction of a sample's range.
NEAR = tl.constexpr(1 / 64)
# The lowest finite float32.
LEAST = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def sample(p_line, vocab_size, i_sample, SIZE: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr):
    """Return one sample of a row: short groups of logits spread over the row.

    NaN and inf become -inf.
    """
    o_token = tl.arange(0, SIZE)[None, :]
    i_group = o_token // GROUP * COUNT + i_sample
    o_first = i_group * (vocab_size // GROUP) // (SIZE // GROUP * COUNT) * GROUP
    b_logits = tl.load(p_line + o_first + o_token % GROUP)
    return tl.where(b_logits < float("inf"), b_logits, NEVER)


@triton.jit
def _between(b_logits, start, end):
    return tl.where((b_logits >= start) & (b_logits < end), b_logits, NEVER)


@triton.jit
def _place(b_logits, b_masses, least, low, high):
    """Return roughly the value in [low, high] above which the masses sum to `least`."""
    for _ in range(STEPS):
        quarter = (high - low) * 0.25
        b_place = low + tl.arange(0, 4).to(tl.float32) * quarter
        b_added = tl.sum(tl.where(b_logits >= b_place[:, None], b_masses, 0.0), axis=1)
        low = tl.max(tl.where(b_added >= least, b_place, low), axis=0)
        high = low + quarter
    return low


@triton.jit
def _num_near(b_logits, middle, near):
    return tl.sum((tl.abs(b_logits - middle) < near).to(tl.float32))


@triton.jit
def interval(
    p_line, vocab_size, start, end, share, scale, wide,
    SIZE: tl.constexpr, GROUP: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Return an interval of about `wide` logits that should contain the floor, and its rank.

    The floor is in [start, end); the rank counts logits at or above it.

    The logits at or above the floor have the given `share` of the mass in [start, end).
    """
    b_logits = _between(sample(p_line, vocab_size, 0, SIZE, GROUP, COUNT), start, end)
    maximum = tl.maximum(tl.max(b_logits), LEAST)
    low = tl.maximum(tl.min(tl.where(b_logits > NEVER, b_logits, maximum)), maximum - FAR / scale)
    near = (maximum - low) * NEAR
    b_masses = weight(b_logits, NEVER, maximum, scale)
    total = tl.sum(b_masses)
    middle = _place(b_logits, b_masses, share * total, low, maximum)
    above, num_near = tl.sum(tl.where(b_logits >= middle, b_masses, 0.0)), _num_near(b_logits, middle, near)
    rank = tl.sum((b_logits >= middle).to(tl.float32)) * vocab_size / SIZE
    # Further samples estimate how far the first one is off.
    for i_sample in range(1, COUNT):
        b_logits = _between(sample(p_line, vocab_size, i_sample, SIZE, GROUP, COUNT), start, end)
        b_masses = weight(b_logits, NEVER, maximum, scale)
        total += tl.sum(b_masses)
        above += tl.sum(tl.where(b_logits >= middle, b_masses, 0.0))
        num_near += _num_near(b_logits, middle, near)
    distance = 2 * near / tl.maximum(num_near, 1.0)
    half = wide * (0.5 * SIZE * COUNT) / vocab_size * distance
    if COUNT > 1:
        middle -= (share * total - above) / tl.exp2((middle - maximum) * scale) * distance
    highest = tl.where(maximum > low, tl.minimum(middle + half, end), end)
    return tl.maximum(middle - half, start), highest, rank
