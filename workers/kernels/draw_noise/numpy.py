"""Generate a step's sampling noise as a function of (seed, position, stream)."""

from functools import lru_cache

import numpy as np
from numpy import add, bitwise_and, bitwise_xor, multiply, right_shift
from numpy.typing import NDArray

from workers.kernels.arithmetic.numpy import Integers, Words, as_uint64, shared, uint64_scalar
from workers.kernels.draw_noise.definition import ACCEPT_STREAM, SELECT_STREAM, DrawNoise

_ROUNDS = 10
_MASK, _HALF, _LOWEST = uint64_scalar(0xFFFFFFFF), uint64_scalar(32), uint64_scalar(8)
_MULTIPLIERS, _WEYL = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
_UNIT = np.array(2**-24, dtype=np.float32)


def philox(seed: Words, position: Words, stream: Words, index: Words) -> Words:
    """Return four random 32-bit integers per key `seed` and counter (position, stream, index).

    Arguments are [N], the result is [4, N].
    """
    count = len(seed)
    multipliers, weyl, exchanged = _constants(count)
    keys = np.concatenate((seed & _MASK, seed >> _HALF))
    # The first and third word of each counter, which are multiplied; then the second and fourth.
    factors, others = np.concatenate((position & _MASK, stream)), np.concatenate((position >> _HALF, index))
    for _ in range(_ROUNDS):
        products = multiply(factors, multipliers, factors)[exchanged]
        right_shift(products, _HALF, factors)
        bitwise_xor(factors, others, factors)
        bitwise_xor(factors, keys, factors)
        # The upper halves of keys and products never change the lower halves, so one mask at the end suffices.
        bitwise_and(factors, _MASK, factors)
        others = products
        add(keys, weyl, keys)
    others &= _MASK
    return np.concatenate((factors.reshape(2, count), others.reshape(2, count)), axis=1).reshape(4, count)


@lru_cache(maxsize=64)
def _constants(count: int) -> tuple[Words, Words, Integers]:
    """Return Philox's multipliers and key increments, and the index that swaps the halves."""
    multipliers, weyl = (np.array(pair, dtype=np.uint64).repeat(count) for pair in (_MULTIPLIERS, _WEYL))
    return shared(multipliers), shared(weyl), shared(np.roll(np.arange(2 * count), count))


def uniform(drawn: Words) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = (drawn >> _LOWEST).astype(np.float32)
    numbers *= _UNIT
    return numbers


@lru_cache(maxsize=64)
def _counters(num_rows: int, k: int, num_tries: int) -> tuple[Integers, Words, Words, Words]:
    """Return the row and the counter parts of every random number of a step.

    Acceptance numbers [num_rows, K] come first, then selection numbers [num_rows, 1 + K, 1 + num_tries].
    """
    row, zero = np.arange(num_rows), np.zeros(1, dtype=np.int64)

    def flat(of_drafts: NDArray[np.int64], of_tries: NDArray[np.int64]) -> Integers:
        drafts = np.broadcast_to(of_drafts, (num_rows, k)).ravel()
        return shared(np.concatenate((drafts, np.broadcast_to(of_tries, (num_rows, 1 + k, 1 + num_tries)).ravel())))

    added = flat(zero, np.arange(1 + k)[:, None])
    stream, index = flat(zero + ACCEPT_STREAM, zero + SELECT_STREAM), flat(np.arange(k), np.arange(1 + num_tries))
    return flat(row[:, None], row[:, None, None]), as_uint64(added), as_uint64(stream), as_uint64(index)


def draw_noise(a: DrawNoise) -> None:
    row, added, stream, index = _counters(len(a.seeds), a.num_speculative_tokens, a.num_tries)
    position = as_uint64(a.positions)[row]
    position += added
    numbers = uniform(philox(as_uint64(a.seeds)[row], position, stream, index))
    num_drafts = len(a.accept_noise)
    a.accept_noise[:] = numbers[0, :num_drafts]
    a.select_noise.reshape(-1, 4)[:] = numbers[:, num_drafts:].T
