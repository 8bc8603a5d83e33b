"""Arithmetic of the integer model on arrays; equal to the scalar definition.

Arrays of a step are small, so a call costs more than its elements. Constants are zero-dimensional arrays of the dtype
that they are combined with, because NumPy takes several times as long to convert a Python number at each call. Operands
have equal shapes and contiguous memory, which is three times as fast; repeated index arrays are cached. Indexing with
an array costs half a call and with a mask a whole call, so a mask that is used twice is turned into indexes. Rows of
a table are fetched with `take`, which is faster than indexing.
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
    """Make an array read-only and return it, so that callers can share it."""
    array.flags.writeable = False
    return array


@cache
def int64_scalar(value: int) -> Integers:
    """Return an integer as a read-only int64 array without dimensions, cached."""
    return shared(np.array(value, dtype=np.int64))


@cache
def uint64_scalar(value: int) -> Words:
    """Return an integer modulo 2^64 as a read-only uint64 array without dimensions, cached."""
    return shared(np.array(value & MASK, dtype=np.uint64))


GOLDEN = uint64_scalar(definition.GOLDEN)
POSITION = uint64_scalar(definition.POSITION)
LAYER = definition.LAYER
VOCABULARY = uint64_scalar(definition.VOCABULARY)
DECAY = definition.DECAY
DRAFTER_LAYER = definition.DRAFTER_LAYER
LOGIT_SHIFT = uint64_scalar(definition.LOGIT_SHIFT)
POSITIONS_MAX = definition.POSITIONS_MAX
ONE, TWO, THREE = uint64_scalar(1), uint64_scalar(2), uint64_scalar(3)
ZERO, NOTHING = int64_scalar(0), uint64_scalar(0)

# The difference of `kv_terms` between neighbouring positions.
PLACE_STEP = uint64_scalar(2 * definition.POSITION)
_MULTIPLIER = uint64_scalar(definition.MULTIPLIER)
_NUMBER = definition.MULTIPLIER
_SHIFT_0, _SHIFT_1 = uint64_scalar(23), uint64_scalar(47)


def mix(x: Words) -> Words:
    """Scramble 64-bit integers in place (a hash), and return them."""
    # NumPy functions, because most time is spent here and operators look these functions up first.
    shifted = right_shift(x, _SHIFT_0)
    bitwise_xor(x, shifted, x)
    multiply(x, _MULTIPLIER, x)
    right_shift(x, _SHIFT_1, shifted)
    bitwise_xor(x, shifted, x)
    return x


def mix_number(x: int) -> int:
    """Return `mix` of one Python integer."""
    x &= MASK
    x = (x ^ (x >> 23)) * _NUMBER & MASK
    return x ^ (x >> 47)


def scores(hidden: Words, vocab_size: int) -> Words:
    """Return the logits of all token ids as integers below 2^24: [N, vocab_size].

    `hidden` has N hidden states.
    """
    return _scored(hidden[:, None] + vocabulary_terms(vocab_size))


def scores_of(hidden: int, vocab_size: int) -> Words:
    """Return the logits of all token ids for one hidden state: [vocab_size]."""
    return _scored(np.array(hidden, dtype=_WORD) + vocabulary_terms(vocab_size))


def _scored(x: Words) -> Words:
    """Return the logits for sums of a hidden state and a vocabulary term; overwrites `x`."""
    bitwise_xor(x, right_shift(x, _SHIFT_0), x)
    multiply(x, _MULTIPLIER, x)
    # The last step of `mix` changes only the lowest 17 bits, and a logit is the highest 24.
    right_shift(x, LOGIT_SHIFT, x)
    return x


def as_uint64(x: Integers) -> Words:
    """View non-negative int64 values as uint64, without a copy."""
    return x.view(_WORD)


def embed(tokens: Integers, out: Words | None = None) -> Words:
    """Return the hidden states of token ids, in `out` if given.

    An invalid id has the word of the nearest valid id.
    """
    return embeddings().take(tokens, out=out, mode="clip")


def kv_terms(positions: Integers, layer: int) -> Words:
    """Return the part of KV entries that depends on position and layer, for these positions."""
    return position_terms(layer).take(positions, mode="clip")


def kv_entries(hidden: Words, positions: Integers, layer: int) -> Words:
    """Return the KV-cache entries of an attention layer for tokens at positions."""
    x = kv_terms(positions, layer)
    x += hidden
    return mix(x)


def cached_entries(kv: Words, block_table: Integers, block_size: int, max_blocks: int, num_blocks_max: int) -> Words:
    """Return the KV entries in each row's first blocks: [num_rows, num_blocks_max * block_size].

    Shapes: kv [num_blocks * block_size], block_table [num_rows * max_blocks]. Words of missing blocks are undefined.
    """
    num_rows = len(block_table) // max_blocks
    blocks = block_table[first_entries(num_rows, max_blocks, num_blocks_max)]
    return kv.reshape(-1, block_size).take(blocks, axis=0, mode="clip").reshape(num_rows, num_blocks_max * block_size)


def attention(cached: Words, index: Integers, out: Words | None = None) -> tuple[Words, Words]:
    """Return the attention outputs and the sums of KV entries up to the positions `index`.

    Shapes: cached [num_rows, length], which is overwritten; index (flat into cached), `out` and both results [N].
    """
    # Every weight grows by 2 with each position: attention is twice the sum of all prefix sums, minus the last prefix
    # sum. Indexes are clipped because padding tokens belong to no row.
    add.accumulate(cached, axis=1, out=cached)
    sums = cached.take(index, mode="clip")
    seen = add.accumulate(cached, axis=1, out=cached).take(index, out=out, mode="clip")
    seen += seen
    seen -= sums
    return seen, sums


def draft_hidden(hidden: Words, tokens: Integers, out: Words | None = None) -> Words:
    """Return the drafter's inputs: hidden states combined with the tokens after them.

    The result is written to `out` if given.
    """
    x = embed(tokens, out)
    x += hidden * THREE
    return mix(x)


@cache
def arange(stop: int) -> Integers:
    """Return 0, 1 ... stop - 1; read-only and cached, like all arrays below."""
    return shared(np.arange(stop, dtype=np.int64))


@cache
def multiples(count: int, step: int) -> Integers:
    """Return 0, step, ..., (count - 1) * step."""
    return shared(arange(count) * step)


@lru_cache(maxsize=1024)
def tiled(stop: int, count: int) -> Integers:
    """Return `arange(stop)` repeated `count` times, flat."""
    return shared(np.tile(arange(stop), count))


@lru_cache(maxsize=1024)
def repeated(stop: int, count: int) -> Integers:
    """Return 0 `count` times, then 1 `count` times, and so on up to stop - 1, flat."""
    return shared(np.repeat(arange(stop), count))


@cache
def runs(stop: int, count: int) -> Integers:
    """Return the numbers n, n + 1, ..., n + count - 1 for each n below `stop`: [stop, count]."""
    return shared(column(stop) + arange(count))


@cache
def lines(count: int, width: int) -> Integers:
    """Return the flat indexes of an array [count, width], in that shape."""
    return shared(np.arange(count * width).reshape(count, width))


@cache
def first_entries(num_lines: int, width: int, count: int) -> Integers:
    """Return the flat indexes of the first `count` columns of an array [num_lines, width]."""
    return shared(lines(num_lines, width)[:, :count].ravel())


@cache
def columns(num_rows: int, width: int, num_real: int, count: int) -> Integers:
    """Return the flat indexes of an array's first `count` columns, one column after the other.

    Only the first `num_real` rows are included.
    """
    return shared(lines(num_rows, width)[:num_real, :count].T.ravel())


@cache
def block_places(block_size: int, max_blocks: int, length: int) -> tuple[Integers, Integers]:
    """Return, for each position, its index in the block table and its offset in the block.

    The position `length` has no slot: its offset is far below every block's.
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
    """Return the KV-cache slots of positions.

    `first` is the index of each position's first entry in block_table.

    PAD_SLOT where the row has no block, and from position `length` on. Written to `out` if given.
    """
    entries, offsets = block_places(block_size, max_blocks, length)
    slots = block_table.take(first + entries.take(positions, mode="clip"), mode="clip")
    slots *= int64_scalar(block_size)
    slots += offsets.take(positions, mode="clip")
    # A missing block is -1, and the offset past the end is hugely negative: the maximum turns both into PAD_SLOT.
    return np.maximum(slots, int64_scalar(PAD_SLOT), out=slots if out is None else out)


def store(memory: NDArray[Scalar], slots: Integers, values: NDArray[Scalar]) -> None:
    """Write the values of all tokens that have a slot to memory."""
    if PAD_SLOT in slots.tolist():
        (mapped,) = (slots >= ZERO).nonzero()
        slots, values = slots[mapped], values[mapped]
    memory[slots] = values


@cache
def column(stop: int) -> Integers:
    """Return `arange(stop)` as a column, with shape [stop, 1]."""
    return arange(stop).reshape(stop, 1)


@cache
def window_weights(width: int) -> Words:
    """Return the weights of the inputs in a convolution window, oldest first."""
    return shared(as_uint64(np.arange(2 * width - 1, 0, -2)) * GOLDEN)


@cache
def embeddings() -> Words:
    """Return the hidden states of all token ids and of the mask token."""
    return shared(mix((as_uint64(np.arange(definition.NUM_EMBEDDED)) + ONE) * GOLDEN))


@cache
def position_terms(layer: int) -> Words:
    """Return, for each position, the part of a KV entry that depends on position and layer.

    Positions include those of draft tokens past the end of the longest model.
    """
    odd = as_uint64(np.arange(POSITIONS_MAX)) * TWO + ONE
    return shared(odd * POSITION + uint64_scalar(layer * LAYER))


@cache
def vocabulary_terms(size: int) -> Words:
    """Return, for each token id, the part of its logit that depends on the id."""
    return shared(as_uint64(np.arange(1, size + 1)) * VOCABULARY)
