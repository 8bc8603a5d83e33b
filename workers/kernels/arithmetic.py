"""The model's arithmetic on arrays: equal, element by element, to the scalar functions of `workers.model`."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
POSITION = np.uint64(0xD6E8FEB86659FD93)
LAYER = 0xA0761D6478BD642F
VOCABULARY = np.uint64(0xE7037ED1A0B428DB)
DECAY = 0x5851F42D4C957F2D
DRAFTER_LAYER = 64
LOGIT_SHIFT = np.uint64(40)
ONE, TWO, THREE = np.uint64(1), np.uint64(2), np.uint64(3)

_MULTIPLIER = np.uint64(0x2127599BF4325C37)
_SHIFT_0, _SHIFT_1 = np.uint64(23), np.uint64(47)
_MASK = (1 << 64) - 1


def mix(x: Words) -> Words:
    """Scramble words in place and return them."""
    x ^= x >> _SHIFT_0
    x *= _MULTIPLIER
    x ^= x >> _SHIFT_1
    return x


def words(x: NDArray[np.int64]) -> Words:
    """See non-negative int64 as uint64, without a copy."""
    return x.view(np.uint64)


def embed(tokens: NDArray[np.int64]) -> Words:
    """Return the hidden words of token ids."""
    x = words(tokens) + ONE
    x *= GOLDEN
    return mix(x)


def kv_places(positions: NDArray[np.int64], layer: int) -> Words:
    """Return what position and layer add to a hidden word before it is stored."""
    x = words(positions) * TWO
    x += ONE
    x *= POSITION
    if layer:
        x += np.uint64(layer * LAYER & _MASK)
    return x


def kv_words(hidden: Words, positions: NDArray[np.int64], layer: int) -> Words:
    """Return what an attention layer stores for tokens at positions."""
    x = kv_places(positions, layer)
    x += hidden
    return mix(x)


def attention(sums: Words, sums_position: Words, positions: NDArray[np.int64]) -> Words:
    """Return (2 i + 1) * sum of kv - 2 * sum of kv times position."""
    x = words(positions) * TWO
    x += ONE
    x *= sums
    x -= sums_position * TWO
    return x


def draft_hidden(hidden: Words, tokens: NDArray[np.int64]) -> Words:
    """Return the drafter's inputs: hidden words and the tokens that follow them."""
    x = embed(tokens)
    x += hidden * THREE
    return mix(x)


@cache
def arange(stop: int) -> NDArray[np.int64]:
    """Return 0, 1, ..., stop - 1: one shared read-only array a length."""
    array = np.arange(stop, dtype=np.int64)
    array.flags.writeable = False
    return array


@cache
def column(stop: int) -> NDArray[np.int64]:
    """Return `arange(stop)` as a column."""
    return arange(stop).reshape(stop, 1)


@cache
def decay_powers(count: int) -> tuple[Words, Words]:
    """Return DECAY^(t + 1) and its inverse modulo 2^64, for t < count."""
    inverse = pow(DECAY, -1, 1 << 64)
    powers = np.array([pow(DECAY, t + 1, 1 << 64) for t in range(count)], dtype=np.uint64)
    inverses = np.array([pow(inverse, t + 1, 1 << 64) for t in range(count)], dtype=np.uint64)
    return powers, inverses


@cache
def taps(width: int) -> tuple[Any, ...]:
    """Return the weights of a convolution window, oldest input first."""
    return tuple(np.uint64((2 * (width - 1 - index) + 1) * int(GOLDEN) & _MASK) for index in range(width))


@cache
def vocabulary(size: int) -> Words:
    """Return what the logit of each token id adds to a hidden word."""
    return (words(arange(size)) + ONE) * VOCABULARY
