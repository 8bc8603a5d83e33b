"""Model of Specstorm's own engine: integer arithmetic modulo 2^64 in place of floats.

Every operation is exact, so results are equal on every device and in any batch order. `mix` is the finalizer of
fast-hash (Zilong Tan): a bijection with high bits that depend on every input bit.
"""

from collections.abc import Iterable
from operator import mul

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
POSITION = 0xD6E8FEB86659FD93
LAYER = 0xA0761D6478BD642F
VOCABULARY = 0xE7037ED1A0B428DB
DECAY = 0x5851F42D4C957F2D
DRAFTER_LAYER = 64
LOGIT_SHIFT = 40
TAPS = tuple((2 * index + 1) * GOLDEN & MASK for index in range(8))


def mix(x: int) -> int:
    """Scramble 64 bits by a fixed bijection (a hash)."""
    x = ((x ^ (x >> 23)) * 0x2127599BF4325C37) & MASK
    return x ^ (x >> 47)


def embed(token: int) -> int:
    """Return the hidden state (one 64-bit integer) of a token id."""
    return mix((token + 1) * GOLDEN & MASK)


def kv_entry(hidden: int, position: int, layer: int) -> int:
    """Return the KV entry (one 64-bit integer) of an attention layer for a token at a position."""
    return mix((hidden + (2 * position + 1) * POSITION + layer * LAYER) & MASK)


def attention(sum_kv: int, sum_kv_position: int, position: int) -> int:
    """Return the sum of kv[j] * (2 (i - j) + 1) over j <= i, from running sums at position i."""
    return ((2 * position + 1) * sum_kv - 2 * sum_kv_position) & MASK


def after_attention(hidden: int, output: int) -> int:
    """Return the hidden state (one 64-bit word) after an attention layer."""
    return mix((hidden + output) & MASK)


def convolve(window: list[int]) -> int:
    """Return what a convolution window (inputs, oldest first) adds to the recurrent state.

    TAPS[0] is the weight of the newest input.
    """
    return mix(sum(map(mul, reversed(window), TAPS)) & MASK)


def advance(state: int, window: list[int]) -> int:
    """Return the recurrent state after one more token, the last input of the convolution window."""
    return (DECAY * state + convolve(window)) & MASK


def after_recurrent(hidden: int, state: int) -> int:
    """Return the hidden state (one 64-bit word) after a recurrent layer."""
    return mix((hidden + state) & MASK)


def logit(hidden: int, token: int) -> int:
    """Return a token's logit as an integer below 2^24, which float32 holds exactly."""
    return mix((hidden + (token + 1) * VOCABULARY) & MASK) >> LOGIT_SHIFT


def draft_hidden(hidden: int, token: int) -> int:
    """Return the drafter's input: the target's hidden state combined with the next token."""
    return mix((3 * hidden + embed(token)) & MASK)


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    """Return the prefix-cache hash of a block, from its tokens and the hash of its parent block."""
    for token in tokens:
        parent = mix((3 * parent + embed(token)) & MASK)
    return parent
