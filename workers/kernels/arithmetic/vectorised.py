"""The model's arithmetic on arrays: equal, element by element, to the scalar functions of the definition.

Arrays of a step are small, so a call costs more than its elements. Numbers that ops use again and again are arrays
without dimensions, of the type they are combined with: NumPy takes several times as long with a Python number or
another type, which it converts at each call. And it takes three times as long where shapes differ or memory is not in
one piece: so what repeats is repeated, and looked up.
"""

from functools import cache, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy import bitwise_xor, multiply, right_shift
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from workers.kernels.arithmetic import definition
from workers.kernels.sentinels import PAD_SLOT

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Scalar = TypeVar("Scalar", bound=np.generic)
_MASK = (1 << 64) - 1
_WORD = np.dtype(np.uint64)


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


GOLDEN = word(definition.GOLDEN)
POSITION = word(definition.POSITION)
LAYER = definition.LAYER
VOCABULARY = word(definition.VOCABULARY)
DECAY = definition.DECAY
DRAFTER_LAYER = definition.DRAFTER_LAYER
LOGIT_SHIFT = word(definition.LOGIT_SHIFT)
VOCAB_SIZE_MAX = 1 << 16
POSITIONS_MAX = (1 << 16) + 64
ONE, TWO, THREE = word(1), word(2), word(3)
ZERO = integer(0)

_MULTIPLIER = word(definition.MULTIPLIER)
_SHIFT_0, _SHIFT_1 = word(23), word(47)


def mix(x: Words) -> Words:
    """Scramble words in place and return them."""
    # Functions of NumPy, for most time goes by in here: operators look for them first.
    shifted = right_shift(x, _SHIFT_0)
    bitwise_xor(x, shifted, x)
    multiply(x, _MULTIPLIER, x)
    right_shift(x, _SHIFT_1, shifted)
    bitwise_xor(x, shifted, x)
    return x


def words(x: Integers) -> Words:
    """See non-negative int64 as uint64, without a copy."""
    return x.view(_WORD)


def embed(tokens: Integers, out: Words | None = None) -> Words:
    """Return the hidden words of token ids, in `out` if it is given; what is no id has the word of the nearest one."""
    return embeddings().take(tokens, out=out, mode="clip")


def kv_places(positions: Integers, layer: int) -> Words:
    """Return what position and layer add to a hidden word before it is stored, a new array."""
    return places(layer).take(positions, mode="clip")


def kv_words(hidden: Words, positions: Integers, layer: int) -> Words:
    """Return what an attention layer stores for tokens at positions."""
    x = kv_places(positions, layer)
    x += hidden
    return mix(x)


def attention(sums: Words, sums_position: Words, positions: Integers) -> Words:
    """Return (2 i + 1) * sum of kv - 2 * sum of kv times position."""
    x = words(positions) * sums
    x -= sums_position
    x *= TWO
    x += sums
    return x


def draft_hidden(hidden: Words, tokens: Integers, out: Words | None = None) -> Words:
    """Return the drafter's inputs, in `out` if it is given: hidden words and the tokens that follow them."""
    x = embed(tokens, out)
    x += hidden * THREE
    return mix(x)


@cache
def arange(stop: int) -> Integers:
    """Return 0, 1, ..., stop - 1: one shared read-only array a length, as of all that follow."""
    return _shared(np.arange(stop, dtype=np.int64))


@cache
def multiples(count: int, step: int) -> Integers:
    """Return 0, step, ..., (count - 1) * step."""
    return _shared(arange(count) * step)


@cache
def tiled(stop: int, count: int) -> Integers:
    """Return `arange(stop)`, `count` times one after the other, flat."""
    return _shared(np.tile(arange(stop), count))


@cache
def repeated(stop: int, count: int) -> Integers:
    """Return 0 `count` times, then 1 as often, and so on up to stop - 1, flat."""
    return _shared(np.repeat(arange(stop), count))


@cache
def repeated_multiples(count: int, step: int, times: int) -> Integers:
    """Return `multiples(count, step)`, each `times` times, flat."""
    return _shared(multiples(count, step).repeat(times))


@cache
def steps_ahead(num_rows: int, num_real: int, k: int, num_fed: int) -> Integers:
    """Return how far ahead of its row's last token each draft is, flat [num_rows * k]; past any end where not fed."""
    ahead = np.full((num_rows, k), POSITIONS_MAX, dtype=np.int64)
    ahead[:num_real, :num_fed] = 1 + arange(num_fed)
    return _shared(ahead.ravel())


@cache
def block_places(block_size: int, max_blocks: int, length: int) -> tuple[Integers, Integers]:
    """Return for each position below `length`, and for the one behind, its entry of a block table and its offset there.

    The position behind the last one has no place: its offset is far below that of any block.
    """
    positions = arange(length + 1)
    entries, offsets = np.minimum(positions // block_size, max_blocks - 1), positions % block_size
    offsets[-1] = -(1 << 40)
    return _shared(entries), _shared(offsets)


def slots_at(
    positions: Integers,
    first: Integers,
    block_table: Integers,
    block_size: int,
    max_blocks: int,
    length: int,
    out: Integers | None = None,
) -> Integers:
    """Return the slots of positions, for each of which `first` is its row's first entry of a block table [rows * max].

    PAD_SLOT where a row has no block, and from position `length` on. In `out` if it is given.
    """
    entries, offsets = block_places(block_size, max_blocks, length)
    slots = block_table.take(first + entries.take(positions, mode="clip"), mode="clip")
    slots *= integer(block_size)
    slots += offsets.take(positions, mode="clip")
    # No block is -1, and past the end an offset is as good as minus infinity: what is no slot is PAD_SLOT at most.
    return np.maximum(slots, integer(PAD_SLOT), out=slots if out is None else out)


@cache
def below(stop: int) -> NDArray[np.bool_]:
    """Return for each n up to `stop` which of the numbers below `stop` are below n: [stop + 1, stop]."""
    return _shared(arange(stop) < column(stop + 1))


@cache
def capped(stop: int) -> Integers:
    """Return for each n below `stop` the numbers below `stop`, those above n replaced by it: [stop, stop]."""
    return _shared(np.minimum(arange(stop), column(stop)))


@cache
def column(stop: int) -> Integers:
    """Return `arange(stop)` as a column."""
    return arange(stop).reshape(stop, 1)


@lru_cache(maxsize=64)
def decay_powers(count: int, num_rows: int) -> tuple[Words, Words]:
    """Return DECAY^t and its inverse modulo 2^64, for t < count, each `num_rows` times: [count, num_rows]."""
    factors = np.array([[DECAY], [pow(DECAY, -1, 1 << 64)]], dtype=np.uint64).repeat(count, axis=1)
    factors[:, 0] = 1
    both = np.multiply.accumulate(factors, axis=1).repeat(num_rows, axis=1)
    powers, inverses = both.reshape(2, count, num_rows)
    return _shared(powers), _shared(inverses)


@cache
def taps(width: int) -> tuple[Any, ...]:
    """Return the weights of a convolution window, oldest input first."""
    return tuple(word((2 * (width - 1 - index) + 1) * int(GOLDEN)) for index in range(width))


@cache
def first_of(count: int) -> Words:
    """Return for each n up to `count` n times 1, then 0: [count + 1, count], windows of one array of 2 * count."""
    ones = np.repeat(np.array((1, 0), dtype=np.uint64), count)
    return sliding_window_view(ones, count)[::-1]


@cache
def ones_and_positions(count: int) -> Words:
    """Return 1 and its position for each of `count` positions: [count, 2]."""
    return _shared(np.stack((np.ones(count, dtype=np.uint64), words(arange(count))), axis=1))


@cache
def embeddings() -> Words:
    """Return the hidden words of all ids that the largest vocabulary can have, and of the one behind it."""
    return _shared(mix(words(np.arange(1, VOCAB_SIZE_MAX + 2)) * GOLDEN))


@cache
def places(layer: int) -> Words:
    """Return (2 i + 1) * POSITION, and what the layer adds, for all positions i of the longest model and its drafts."""
    odd = words(np.arange(1, 2 * POSITIONS_MAX, 2))
    return _shared(odd * POSITION + word(layer * LAYER))


@cache
def vocabulary(size: int) -> Words:
    """Return what the logit of each token id adds to a hidden word."""
    return words(np.arange(1, size + 1)) * VOCABULARY
