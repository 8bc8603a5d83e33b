"""Random numbers as functions of a label (seed, site, key, index), whatever the call order.

Philox4x32-10 is the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol, TypeAlias

_MASK32 = 0xFFFFFFFF
_MULTIPLIER_0, _MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
_WEYL_0, _WEYL_1 = 0x9E3779B9, 0xBB67AE85


@lru_cache(maxsize=1024)
def _round_keys(key: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the two 32-bit key words of each of Philox's ten rounds.

    Cached, because few keys serve many numbers.
    """
    return tuple(((key[0] + n * _WEYL_0) & _MASK32, (key[1] + n * _WEYL_1) & _MASK32) for n in range(10))


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of Philox4x32-10 for a 128-bit counter and a 64-bit key."""
    c0, c1, c2, c3 = counter
    for k0, k1 in _round_keys(key):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c2 = (product_1 >> 32) ^ c1 ^ k0, (product_0 >> 32) ^ c3 ^ k1
        c1, c3 = product_1 & _MASK32, product_0 & _MASK32
    return c0, c1, c2, c3


@lru_cache(maxsize=65536)
def label_key(site: str, key: str) -> tuple[int, int]:
    """Return the 64-bit Philox key for a label's `site` and `key`.

    The label's seed and index are in the Philox counter.
    """
    digest = blake2b(f"{site}\x00{key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:], "little")


def draw(seed: int, site: str, key: str, index: int) -> int:
    """Return 64 uniform bits for the label (seed, site, key, index).

    `index` is a natural coordinate (token position, tick, step), never a count of calls.
    """
    high, low, _, _ = words(seed, site, key, index)
    return high << 32 | low


def words(seed: int, site: str, key: str, index: int) -> tuple[int, int, int, int]:
    """Return four uniform 32-bit words for a label; `draw` returns the first two."""
    counter = (index & _MASK32, (index >> 32) & _MASK32, seed & _MASK32, (seed >> 32) & _MASK32)
    return philox4x32(counter, label_key(site, key))


def below(bound: int, seed: int, site: str, key: str, index: int) -> int:
    """Return an integer in [0, bound) for a label, uniform up to a bias below bound / 2^64."""
    assert bound > 0
    return draw(seed, site, key, index) * bound >> 64


class Draws(Protocol):
    """Stream of small random numbers for one label."""

    def below(self, bound: int) -> int:
        """Return the next number in [0, bound)."""

    def of(self, numbers: Sequence[int]) -> int:
        """Return a random item of `numbers`, all equally likely."""

    def chance(self, weight: Fraction) -> bool:
        """Return true with probability `weight`; Hypothesis shrinks it to false."""

    def one_in(self, count: int) -> bool:
        """Return true with probability 1 / `count`; Hypothesis shrinks it to false."""


# Maps a label (site, index) to its stream of numbers.
Source: TypeAlias = Callable[[str, int], Draws]


class Digits:
    """Stream of small random numbers: mixed-radix digits of a label's 64 random bits."""

    __slots__ = ("_rest",)

    def __init__(self, seed: int, site: str, index: int) -> None:
        self._rest = draw(seed, "random_trace", site, index)

    def below(self, bound: int) -> int:
        """Return the next number in [0, bound).

        Callers keep the product of all bounds far below 2^64.
        """
        self._rest, number = divmod(self._rest, bound)
        return number

    def of(self, numbers: Sequence[int]) -> int:
        return numbers[self.below(len(numbers))]

    def chance(self, weight: Fraction) -> bool:
        return self.below(weight.denominator) < weight.numerator

    def one_in(self, count: int) -> bool:
        return self.below(count) == 0
