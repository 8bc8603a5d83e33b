"""Arithmetic of the integer model, as scalar functions of integers modulo 2^64.

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
    """Scramble 64 bits, bijectively."""
    x = ((x ^ (x >> 23)) * 0x2127599BF4325C37) & MASK
    return x ^ (x >> 47)


def embed(token: int) -> int:
    """Return the hidden word of a token id."""
    return mix((token + 1) * GOLDEN & MASK)


def kv_word(hidden: int, position: int, layer: int) -> int:
    """Return the KV-cache word of an attention layer for a token at a position."""
    return mix((hidden + (2 * position + 1) * POSITION + layer * LAYER) & MASK)


def attention(sum_kv: int, sum_kv_position: int, position: int) -> int:
    """Return sum of kv[j] * (2 (i - j) + 1), j <= i, from the sums of kv[j] and kv[j] * j."""
    return ((2 * position + 1) * sum_kv - 2 * sum_kv_position) & MASK


def after_attention(hidden: int, output: int) -> int:
    """Return the hidden word after an attention layer."""
    return mix((hidden + output) & MASK)


def convolve(window: list[int]) -> int:
    """Return what a window of inputs (oldest first) adds to the recurrent state.

    TAPS[0] is the weight of the newest input.
    """
    return mix(sum(map(mul, reversed(window), TAPS)) & MASK)


def advance(state: int, window: list[int]) -> int:
    """Return the recurrent state after the newest input of a window."""
    return (DECAY * state + convolve(window)) & MASK


def after_recurrent(hidden: int, state: int) -> int:
    """Return the hidden word after a recurrent layer."""
    return mix((hidden + state) & MASK)


def logit(hidden: int, token: int) -> int:
    """Return a logit scaled by 2^24: an integer below 2^24, hence an exact float32."""
    return mix((hidden + (token + 1) * VOCABULARY) & MASK) >> LOGIT_SHIFT


def draft_hidden(hidden: int, token: int) -> int:
    """Return the drafter's input at a position: its hidden word combined with the next token."""
    return mix((3 * hidden + embed(token)) & MASK)


def block_hash(parent: int, tokens: Iterable[int]) -> int:
    """Return the hash of a KV-cache block: its tokens and, by `parent`, all earlier blocks."""
    for token in tokens:
        parent = mix((3 * parent + embed(token)) & MASK)
    return parent
