"""Keys of logits, words in the same order, and a search for the key from which on masses add up to enough."""

import triton
import triton.language as tl

# Bits of a key that one step of a search finds, the values of these, and the steps for all bits.
BITS, VALUES, STEPS = tl.constexpr(2), tl.constexpr(4), tl.constexpr(16)
# The key of -inf: every logit has at least that.
LOWEST_KEY = tl.constexpr(0x007FFFFF)


@triton.jit
def lowest_key():
    return tl.max(tl.full([1], LOWEST_KEY, dtype=tl.uint32), axis=0)


@triton.jit
def key_of(b_logits):
    """Return words in the order of the logits; both zeros have one."""
    b_bits = tl.where(b_logits == 0, 0.0, b_logits).to(tl.uint32, bitcast=True)
    return b_bits ^ tl.where(b_bits >> 31 != 0, 0xFFFFFFFF, 0x80000000).to(tl.uint32)


@triton.jit
def logit_of(b_key):
    b_bits = b_key ^ tl.where(b_key >> 31 != 0, 0x80000000, 0xFFFFFFFF).to(tl.uint32)
    return b_bits.to(tl.float32, bitcast=True)


@triton.jit
def digits():
    """Return, as the highest bits of a word, the values that one step of a search distinguishes."""
    return tl.arange(0, VALUES).to(tl.uint32) << (32 - BITS)


@triton.jit
def largest_key(b_keys, b_masses, key, least, above, COUNT: tl.constexpr):
    """Return the largest key such that `above` and the masses of keys from there on add up to at least `least`.

    Keys below `key` have no mass. It is `key` if there is none; and whether there is one. COUNT steps find the first
    bits alone of what it is more than the lowest that has a mass. Shapes: [1, N].
    """
    b_masses = tl.where(b_keys >= key, b_masses, 0.0)
    is_reached = above + tl.sum(b_masses) >= least
    first = tl.min(tl.where(b_masses > 0, b_keys, 0xFFFFFFFF).to(tl.uint32))
    # Of what has no mass it means nothing.
    b_more = b_keys - first
    most = tl.max(tl.where(b_masses > 0, b_more, 0).to(tl.uint32))
    found, b_digit = first * 0, digits()
    for _ in range(COUNT):
        # The digit is 0 if the least of others is more than any key has.
        if tl.max(b_digit, axis=0) // (VALUES - 1) <= most:
            b_next = found | b_digit
            b_added = above + tl.sum(tl.where(b_more >= b_next[:, None], b_masses, 0.0), axis=1)
            found = tl.max(tl.where(b_added >= least, b_next, found), axis=0)
        b_digit = b_digit >> BITS
    return tl.where(is_reached, first + found, key), is_reached
