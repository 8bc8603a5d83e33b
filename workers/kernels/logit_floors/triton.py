"""Find the lowest logit that top-k and top-p keep, line by line."""

import triton
import triton.language as tl

from workers.kernels.launch.triton import check_flat, launch
from workers.kernels.logit_floors.arguments import LogitFloors
from workers.kernels.probabilities.triton import NEVER, scale_of, weight

BLOCK_MAX = 4096
# The mass of any logit that is kept is not below this; that of none is 0.
_LEAST = tl.constexpr(1.1754943508222875e-38)


def logit_floors(a: LogitFloors) -> None:
    """Set floors to the lowest logit of each line that stays.

    One program a line; each limit is found bit by bit, in 32 passes over the line.
    """
    check_flat(a.logits, a.temperature, a.top_k, a.top_p, a.num_drafts, a.floors)
    num_rows, width = a.num_drafts.numel(), 1 + a.num_speculative_tokens
    assert a.logits.numel() == num_rows * width * a.logits_stride
    assert a.floors.numel() == num_rows * width
    block = min(triton.next_power_of_2(a.vocab_size), BLOCK_MAX)
    launch(_kernel, (num_rows * width,))(
        a.logits,
        a.temperature,
        a.top_k,
        a.top_p,
        a.num_drafts,
        a.floors,
        a.vocab_size,
        a.logits_stride,
        width,
        block,
        num_warps=8,
    )


@triton.jit
def _kernel(
    p_logits, p_temperature, p_top_k, p_top_p, p_num_drafts, p_floors,
    vocab_size,
    logits_stride,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i_line = tl.program_id(0).to(tl.int64)
    i_row = i_line // WIDTH
    temperature, num_drafts = tl.load(p_temperature + i_row), tl.load(p_num_drafts + i_row)
    top_k, top_p = tl.load(p_top_k + i_row), tl.load(p_top_p + i_row)
    limits_k, limits_p = (top_k > 0) & (top_k < vocab_size), top_p < 1
    floor = tl.load(p_temperature + i_row) * 0 + NEVER
    if (temperature > 0) & (i_line % WIDTH <= num_drafts) & (limits_k | limits_p):
        p_line, scale = p_logits + i_line * logits_stride, scale_of(temperature)
        maximum, undefined = _maximum(p_line, vocab_size, BLOCK)
        if undefined == 0:
            # The key of -inf: every logit has at least that.
            key = tl.full([1], 0x007FFFFF, dtype=tl.uint32)
            if limits_k:
                least = top_k.to(tl.float32) + 0 * maximum
                key = _largest_key(p_line, key, least, 0.0 * maximum, scale, vocab_size, BLOCK, True)
            if limits_p:
                total = _mass(p_line, key, maximum, scale, vocab_size, BLOCK, False)
                at_least = tl.maximum(top_p * total, _LEAST)
                key = _largest_key(p_line, key, at_least, maximum, scale, vocab_size, BLOCK, False)
            floor = tl.sum(_logit_of(key), axis=0)
    tl.store(p_floors + i_line, floor)


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
def _maximum(p_line, vocab_size, BLOCK: tl.constexpr):
    """Return the largest logit, and whether there is NaN or inf or nothing but -inf."""
    b_maximum = tl.full([BLOCK], NEVER, dtype=tl.float32)
    b_fails = tl.zeros([BLOCK], dtype=tl.int32)
    for start in range(0, vocab_size, BLOCK):
        o_token = start + tl.arange(0, BLOCK)
        b_logits = tl.load(p_line + o_token, mask=o_token < vocab_size, other=NEVER)
        b_fails |= ((b_logits < float("inf")) == 0).to(tl.int32)
        b_maximum = tl.maximum(b_maximum, tl.where(b_logits < float("inf"), b_logits, NEVER))
    maximum = tl.max(b_maximum, axis=0)
    undefined = tl.max(b_fails, axis=0) + (maximum == NEVER).to(tl.int32)
    return maximum, undefined


@triton.jit
def _mass(p_line, key, maximum, scale, vocab_size, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """Return the sum of weights, or the count, of logits with at least this key."""
    b_mass = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, vocab_size, BLOCK):
        o_token = start + tl.arange(0, BLOCK)
        is_token = o_token < vocab_size
        b_logits = tl.load(p_line + o_token, mask=is_token, other=NEVER)
        is_kept = is_token & (_key_of(b_logits) >= key)
        if COUNT:
            b_mass += is_kept.to(tl.float32)
        else:
            b_mass += tl.where(is_kept, weight(b_logits, NEVER, maximum, scale), 0.0)
    return tl.sum(b_mass, axis=0)


@triton.jit
def _largest_key(p_line, key, least, maximum, scale, vocab_size, BLOCK: tl.constexpr, COUNT: tl.constexpr):
    """Return the largest key, not below `key`, whose logits have a mass, or count, of at least `least`."""
    found, bit = key * 0, key * 0 + 0x80000000
    for _ in range(32):
        enough = _mass(p_line, tl.maximum(found | bit, key), maximum, scale, vocab_size, BLOCK, COUNT) >= least
        found = tl.where(enough, found | bit, found)
        bit = bit >> 1
    return tl.maximum(found, key)
