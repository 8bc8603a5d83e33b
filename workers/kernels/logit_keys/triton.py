"""Keys of logits: integers with the same order as the logits.

Search for the key where cumulative mass reaches a bound.
"""

import triton
import triton.language as tl

# Bits of a key that one search step finds, the number of their values, and the steps for all bits.
BITS, VALUES, STEPS = tl.constexpr(2), tl.constexpr(4), tl.constexpr(16)
# The keys of -inf and inf.
LOWEST_KEY, HIGHEST_KEY = tl.constexpr(0x007FFFFF), tl.constexpr(0xFF800000)


@triton.jit
def lowest_key():
    return tl.max(tl.full([1], LOWEST_KEY, dtype=tl.uint32), axis=0)


@triton.jit
def highest_key():
    return tl.max(tl.full([1], HIGHEST_KEY, dtype=tl.uint32), axis=0)


@triton.jit
def key_of(b_logits):
    """Return the keys of logits: integers with the same order; both zeros have one key."""
    b_bits = tl.where(b_logits == 0, 0.0, b_logits).to(tl.uint32, bitcast=True)
    return b_bits ^ tl.where(b_bits >> 31 != 0, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def logit_of(b_key):
    b_bits = b_key ^ tl.where(b_key >> 31 != 0, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return b_bits.to(tl.float32, bitcast=True)


@triton.jit
def largest_key(b_keys, b_masses, key, most, least, above, COUNT: tl.constexpr):
    """Return the largest key for which the mass of keys at or above it reaches `least`.

    Also return whether such a key exists; otherwise the key is `key`. No key with mass exceeds `most`. COUNT steps find
    only the first bits of a key. Shapes: [1, N].
    """
    b_masses = tl.where(b_keys >= key, b_masses, 0.0)
    is_reached = above + tl.sum(b_masses) >= least
    # The exponent of a float gives the highest bit; one more if the conversion rounded up.
    highest_bit = tl.maximum((most.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127, 0)
    num_steps = highest_bit // BITS + 1
    found, b_digit = key * 0, tl.arange(0, VALUES).to(tl.uint32) << ((num_steps - 1) * BITS).to(tl.uint32)
    for _ in range(tl.minimum(num_steps, COUNT)):
        b_next = found | b_digit
        b_added = above + tl.sum(tl.where(b_keys >= b_next[:, None], b_masses, 0.0), axis=1)
        found = tl.max(tl.where(b_added >= least, b_next, found), axis=0)
        b_digit = b_digit >> BITS
    return tl.where(is_reached, tl.maximum(found, key), key), is_reached
