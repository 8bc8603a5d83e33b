"""The model's arithmetic on arrays: equal, element by element, to the scalar functions of the definition.

Arrays of a step are small, so a call costs more than its elements. Numbers that ops use again and again are arrays
without dimensions, of the type they are combined with: NumPy takes several times as long with a Python number or
another type, which it converts at each call. And it takes three times as long where shapes differ or memory is not in
one piece: so what repeats is repeated, and looked up. Indexing by an array costs half of a call, with a mask as much as
one: where a mask is used more than once, its indexes are. Lines of a table are taken, which is faster than an index.
"""

from functools import cache, lru_cache
from typing import TypeVar

import numpy as np
from numpy import add, bitwise_xor, multiply, right_shift
from numpy.typing import NDArray

from workers.kernels.arithmetic import definition
from workers.kernels.sentinels import PAD_SLOT

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]
Scalar = TypeVar("Scalar", bound=np.generic)
MASK = (1 << 64) - 1
_WORD = np.dtype(np.uint64)


def shared(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return an array made read-only."""
    array.flags.writeable = False
    return array


@cache
def integer(value: int) -> Integers:
    """Return an int64, shared and read-only."""
    return shared(np.array(value, dtype=np.int64))


@cache
def word(value: int) -> Words:
    """Return an integer modulo 2^64 as a uint64, shared and read-only."""
    return shared(np.array(value & MASK, dtype=np.uint64))


GOLDEN = word(definition.GOLDEN)
POSITION = word(definition.POSITION)
LAYER = definition.LAYER
VOCABULARY = word(definition.VOCABULARY)
DECAY = definition.DECAY
DRAFTER_LAYER = definition.DRAFTER_LAYER
LOGIT_SHIFT = word(definition.LOGIT_SHIFT)
POSITIONS_MAX = definition.POSITIONS_MAX
ONE, TWO, THREE = word(1), word(2), word(3)
ZERO, NOTHING = integer(0), word(0)

# The difference of `kv_places` between neighbouring positions.
PLACE_STEP = word(2 * definition.POSITION)
_MULTIPLIER = word(definition.MULTIPLIER)
_NUMBER = definition.MULTIPLIER
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


def mix_number(x: int) -> int:
    """Return the `mix` of a word, given modulo 2^64 as any integer."""
    x &= MASK
    x = (x ^ (x >> 23)) * _NUMBER & MASK
    return x ^ (x >> 47)


def scores(hidden: Words, vocab_size: int) -> Words:
    """Return the logits of all token ids after hidden words [N], as integers below 2^24: [N, vocab_size]."""
    return _scored(hidden[:, None] + vocabulary(vocab_size))


def scores_of(hidden: int, vocab_size: int) -> Words:
    """Return the logits of all token ids after one hidden word, [vocab_size]."""
    return _scored(np.array(hidden, dtype=_WORD) + vocabulary(vocab_size))


def _scored(x: Words) -> Words:
    """Return logits by the sums of hidden words and what tokens add to them, which are overwritten."""
    bitwise_xor(x, right_shift(x, _SHIFT_0), x)
    multiply(x, _MULTIPLIER, x)
    # The last step of `mix` changes the lowest 17 bits alone, and a logit is the highest 24.
    right_shift(x, LOGIT_SHIFT, x)
    return x


def words(x: Integers) -> Words:
    """See non-negative int64 as uint64, without a copy."""
    return x.view(_WORD)


def embed(tokens: Integers, out: Words | None = None) -> Words:
    """Return the hidden words of token ids, in `out` if it is given; other numbers have the word of the nearest id."""
    return embeddings().take(tokens, out=out, mode="clip")


def kv_places(positions: Integers, layer: int) -> Words:
    """Return the terms of position and layer that are added to a hidden word before it is stored, a new array."""
    return places(layer).take(positions, mode="clip")


def kv_words(hidden: Words, positions: Integers, layer: int) -> Words:
    """Return the words that an attention layer stores for tokens at positions."""
    x = kv_places(positions, layer)
    x += hidden
    return mix(x)


def cached_words(kv: Words, block_table: Integers, block_size: int, max_blocks: int, num_blocks_max: int) -> Words:
    """Return the first words that each row has cached, [num_rows, num_blocks_max * block_size].

    Shapes: kv [num_blocks * block_size], block_table [num_rows * max_blocks]. Where a row has no block the words are
    undefined.
    """
    num_rows = len(block_table) // max_blocks
    blocks = block_table[first_entries(num_rows, max_blocks, num_blocks_max)]
    return kv.reshape(-1, block_size).take(blocks, axis=0, mode="clip").reshape(num_rows, num_blocks_max * block_size)


def attention(cached: Words, index: Integers, out: Words | None = None) -> tuple[Words, Words]:
    """Return positions' attention over their row's words, in `out` if it is given, and the sum of the words up to each.

    Shapes: cached [num_rows, length], which is overwritten; index, flat in it, and both results [N].
    """
    # Every weight grows by 2 with each position: attention is twice the sum of all sums, less the last of them.
    # Clipped: padding is of no row.
    add.accumulate(cached, axis=1, out=cached)
    sums = cached.take(index, mode="clip")
    seen = add.accumulate(cached, axis=1, out=cached).take(index, out=out, mode="clip")
    seen += seen
    seen -= sums
    return seen, sums


def draft_hidden(hidden: Words, tokens: Integers, out: Words | None = None) -> Words:
    """Return the drafter's inputs, in `out` if it is given: hidden words and the tokens that follow them."""
    x = embed(tokens, out)
    x += hidden * THREE
    return mix(x)


@cache
def arange(stop: int) -> Integers:
    """Return 0, 1, ..., stop - 1: one shared read-only array a length, as of all that follow."""
    return shared(np.arange(stop, dtype=np.int64))


@cache
def multiples(count: int, step: int) -> Integers:
    """Return 0, step, ..., (count - 1) * step."""
    return shared(arange(count) * step)


@lru_cache(maxsize=1024)
def tiled(stop: int, count: int) -> Integers:
    """Return `arange(stop)`, `count` times one after the other, flat."""
    return shared(np.tile(arange(stop), count))


@lru_cache(maxsize=1024)
def repeated(stop: int, count: int) -> Integers:
    """Return 0 `count` times, then 1 as often, and so on up to stop - 1, flat."""
    return shared(np.repeat(arange(stop), count))


@cache
def runs(stop: int, count: int) -> Integers:
    """Return for each n below `stop` the numbers n, n + 1, ..., n + count - 1: [stop, count]."""
    return shared(column(stop) + arange(count))


@cache
def lines(count: int, width: int) -> Integers:
    """Return the places of `count` lines of `width` elements each: [count, width]."""
    return shared(np.arange(count * width).reshape(count, width))


@cache
def first_entries(num_lines: int, width: int, count: int) -> Integers:
    """Return the places of the first `count` elements of each of `num_lines` lines of `width`, flat."""
    return shared(lines(num_lines, width)[:, :count].ravel())


@cache
def columns(num_rows: int, width: int, num_real: int, count: int) -> Integers:
    """Return the places of the first `count` columns of [num_rows, width], `num_real` elements each, one by one."""
    return shared(lines(num_rows, width)[:num_real, :count].T.ravel())


@cache
def block_places(block_size: int, max_blocks: int, length: int) -> tuple[Integers, Integers]:
    """Return for each position below `length`, and for the one behind, its entry of a block table and its offset there.

    The position behind the last one has no place: its offset is far below that of any block.
    """
    positions = arange(length + 1)
    entries, offsets = np.minimum(positions // block_size, max_blocks - 1), positions % block_size
    offsets[-1] = -(1 << 40)
    return shared(entries), shared(offsets)


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


def store(memory: NDArray[Scalar], slots: Integers, values: NDArray[Scalar]) -> None:
    """Write the values of tokens that have a slot to memory."""
    if PAD_SLOT in slots.tolist():
        (mapped,) = (slots >= ZERO).nonzero()
        slots, values = slots[mapped], values[mapped]
    memory[slots] = values


@cache
def column(stop: int) -> Integers:
    """Return `arange(stop)` as a column."""
    return arange(stop).reshape(stop, 1)


@cache
def taps(width: int) -> Words:
    """Return the weights of a convolution window, oldest input first."""
    return shared(words(np.arange(2 * width - 1, 0, -2)) * GOLDEN)


@cache
def embeddings() -> Words:
    """Return the hidden words of all ids that the largest vocabulary can have, and of the one behind it."""
    return shared(mix((words(np.arange(definition.NUM_EMBEDDED)) + ONE) * GOLDEN))


@cache
def places(layer: int) -> Words:
    """Return (2 i + 1) * POSITION plus the layer's term, for all positions i of the longest model and its drafts."""
    odd = words(np.arange(POSITIONS_MAX)) * TWO + ONE
    return shared(odd * POSITION + word(layer * LAYER))


@cache
def vocabulary(size: int) -> Words:
    """Return the term of each token id in the hash of its logit."""
    return shared(words(np.arange(1, size + 1)) * VOCABULARY)
