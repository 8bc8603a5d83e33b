"""Reductions and random numbers in NumPy, with results equal to Triton's interpreter."""

from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array

LOWEST = np.float32("-inf")
# NumPy adds this many values at a time; zeros after them do not change the sum if their number is a power of 2.
_ADDED_AT_ONCE = 128
_MASK = 0xFFFFFFFF
_KEYS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 0xD2511F53, 0xCD9E8D57
_NUM_ROUNDS = 10
_RAND_MIN = np.float32(4.6566127342e-10)
_SALT = 0x9E3779B9


def pad_line(line: Array, width: int, value: Any) -> Array:
    """Return `line`, extended by copies of `value` to length `width`."""
    block = np.full(width, value, dtype=line.dtype)
    block[: len(line)] = line
    return block


def highest(line: Array, width: int) -> tuple[Any, int]:
    """Return the maximum of a block and its first index; missing elements count as -inf."""
    value = np.fmax.reduce(line) if len(line) else LOWEST
    place = int(line.argmax()) if len(line) else 0
    # With -0 and +0, or with NaN, the result depends on the order of lanes: reduce the whole block.
    if value == 0 or not len(line) or line[place] != value:
        block = pad_line(line, width, LOWEST)
        return np.nanmax(block), int(np.nanargmax(block))
    return value, place


def total(line: Array, width: int) -> Any:
    """Return the sum of a block; missing elements count as 0."""
    enough = max(_ADDED_AT_ONCE, 1 << (len(line) - 1).bit_length())
    return np.sum(line if len(line) == width else pad_line(line, min(enough, width), 0))


def uniform(seed: int, offset: int) -> Any:
    """Return the Philox random number in (0, 1] for a seed and an offset."""
    c0, c1, c2, c3 = offset & _MASK, (offset >> 32) & _MASK, 0, 0
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    for _ in range(_NUM_ROUNDS):
        high, low = _ROUNDS[1] * c2, _ROUNDS[0] * c0
        c0, c2 = (high >> 32) ^ c1 ^ k0, (low >> 32) ^ c3 ^ k1
        c1, c3 = high & _MASK, low & _MASK
        k0, k1 = (k0 + _KEYS[0]) & _MASK, (k1 + _KEYS[1]) & _MASK
    signed = ~c0 & _MASK if c0 >> 31 else c0
    return np.maximum(np.float32(signed) * _RAND_MIN, _RAND_MIN)


def noise(seed: int, position: int, keys: Array, in_float64: bool) -> Any:
    """Return Gumbel noise for token ids, from a hash of seed, position and each token id."""
    if in_float64:
        low = _hash(seed, position, keys, 0).astype(np.uint64)
        high = _hash(seed, position, keys, _SALT).astype(np.uint64)
        random = ((high << np.uint64(32)) | low) >> np.uint64(11)
        u = (random.astype(np.float64) + 0.5) * 1.1102230246251565e-16
        u = np.where(u == 1.0, u - 1.1102230246251565e-16, u)
        return -np.log(-np.log(u))
    random = _hash(seed, position, keys, 0)
    high, low = (random >> 16).astype(np.float32), (random & 0xFFFF).astype(np.float32)
    u = high * np.float32(1.52587890625e-05) + (low + np.float32(0.5)) * np.float32(2.3283064365386963e-10)
    return -np.log(-_log_of_rest(u))


def _log_of_rest(u: Array) -> Array:
    """Return log(1 - u), by a series for small u."""
    series: Any = np.float32(1 / 8)
    for divisor in range(7, 0, -1):
        series = np.float32(1 / divisor) + u * series
    series = -u * series
    return np.where(u < 0.25, series, np.log(np.fmax(np.float32(1) - u, np.float32(5.960464477539063e-08))))


def _hash(seed: int, position: int, keys: Array, domain: int) -> Array:
    """Return the 32-bit Murmur3 hash of (seed, position, key) for each key."""
    h: Any = domain
    for word in (seed & _MASK, (seed >> 32) & _MASK, position & _MASK):
        h = _mix(h, word)
    found = _mix(h, keys.astype(np.uint32)) ^ 16
    found ^= found >> 16
    found *= 0x85EBCA6B
    found ^= found >> 13
    found *= 0xC2B2AE35
    mixed: Array = found ^ (found >> 16)
    return mixed


def _mix(h: Any, key: Any) -> Any:
    """Mix a 32-bit key into a hash; both are words or arrays of words."""
    key = key * 0xCC9E2D51 & _MASK
    key = key << 15 & _MASK | key >> 17
    h = h ^ (key * 0x1B873593 & _MASK)
    h = h << 13 & _MASK | h >> 19
    return h * 5 + 0xE6546B64 & _MASK
