"""The model's arithmetic on arrays: equal, element by element, to the scalar functions of `workers.model`.

Numbers that ops use again and again are arrays without dimensions, of the type they are combined with: NumPy takes
several times as long with a Python number or another type, which it converts at each call.
"""

from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Scalar = TypeVar("Scalar", bound=np.generic)
_MASK = (1 << 64) - 1


def _shared(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return an array that nobody may write."""
    array.flags.writeable = False
    return array


@cache
def integer(value: int) -> Integers:
    """Return an int64, shared and read-only."""
    return _shared(np.array(value, dtype=np.int64))


@cache
def word(value: int) -> Words:
    """Return an integer modulo 2^64 as a uint64, shared and read-only."""
    return _shared(np.array(value & _MASK, dtype=np.uint64))


GOLDEN = word(0x9E3779B97F4A7C15)
POSITION = word(0xD6E8FEB86659FD93)
LAYER = 0xA0761D6478BD642F
VOCABULARY = word(0xE7037ED1A0B428DB)
DECAY = 0x5851F42D4C957F2D
DRAFTER_LAYER = 64
LOGIT_SHIFT = word(40)
ONE, TWO, THREE = word(1), word(2), word(3)

_MULTIPLIER = word(0x2127599BF4325C37)
_SHIFT_0, _SHIFT_1 = word(23), word(47)


def mix(x: Words) -> Words:
    """Scramble words in place and return them."""
    x ^= x >> _SHIFT_0
    x *= _MULTIPLIER
    x ^= x >> _SHIFT_1
    return x


def words(x: Integers) -> Words:
    """See non-negative int64 as uint64, without a copy."""
    return x.view(np.uint64)


def embed(tokens: Integers) -> Words:
    """Return the hidden words of token ids."""
    x = words(tokens) + ONE
    x *= GOLDEN
    return mix(x)


def kv_places(positions: Integers, layer: int) -> Words:
    """Return what position and layer add to a hidden word before it is stored."""
    x = words(positions) * TWO
    x += ONE
    x *= POSITION
    if layer:
        x += word(layer * LAYER)
    return x


def kv_words(hidden: Words, positions: Integers, layer: int) -> Words:
    """Return what an attention layer stores for tokens at positions."""
    x = kv_places(positions, layer)
    x += hidden
    return mix(x)


def attention(sums: Words, sums_position: Words, positions: Integers) -> Words:
    """Return (2 i + 1) * sum of kv - 2 * sum of kv times position."""
    x = words(positions) * TWO
    x += ONE
    x *= sums
    x -= sums_position * TWO
    return x


def draft_hidden(hidden: Words, tokens: Integers) -> Words:
    """Return the drafter's inputs: hidden words and the tokens that follow them."""
    x = embed(tokens)
    x += hidden * THREE
    return mix(x)


@cache
def arange(stop: int) -> Integers:
    """Return 0, 1, ..., stop - 1: one shared read-only array a length."""
    return _shared(np.arange(stop, dtype=np.int64))


@cache
def column(stop: int) -> Integers:
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
    return tuple(word((2 * (width - 1 - index) + 1) * int(GOLDEN)) for index in range(width))


@cache
def vocabulary(size: int) -> Words:
    """Return what the logit of each token id adds to a hidden word."""
    return (words(arange(size)) + ONE) * VOCABULARY
