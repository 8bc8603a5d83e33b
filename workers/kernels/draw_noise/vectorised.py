"""Draw the noise of a step's sampling: uniform numbers that are functions of (seed, position, stream) alone.

Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

import numpy as np
from numpy.typing import NDArray

from workers.kernels.draw_noise.arguments import ACCEPT_STREAM, SELECT_STREAM, DrawNoise

_MASK, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIER_0, _MULTIPLIER_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL_0, _WEYL_1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)

Words = NDArray[np.uint64]


def philox(seed: Words, position: Words, stream: int, index: Words) -> tuple[Words, Words, Words, Words]:
    """Return four 32-bit words each: the key is the seed, the counter (position, stream, index)."""
    seed, position, index = np.broadcast_arrays(seed, position, index)
    k0, k1 = seed & _MASK, seed >> _HALF
    c0, c1, c2, c3 = position & _MASK, position >> _HALF, np.full_like(position, stream), index
    for _ in range(10):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (product_1 >> _HALF) ^ c1 ^ k0, product_1 & _MASK, (product_0 >> _HALF) ^ c3 ^ k1, product_0
        c3 = c3 & _MASK
        k0, k1 = (k0 + _WEYL_0) & _MASK, (k1 + _WEYL_1) & _MASK
    return c0, c1, c2, c3


def uniform(words: Words) -> NDArray[np.float32]:
    """Return the upper 24 of 32 bits as numbers in [0, 1)."""
    return (words >> np.uint64(8)).astype(np.float32) * np.float32(2**-24)


def draw_noise(a: DrawNoise) -> None:
    """Draw what verification needs for each row."""
    k, seed = a.num_speculative_tokens, a.seeds.astype(np.uint64)[:, None]
    place: Words = np.add(a.positions.astype(np.uint64)[:, None], np.arange(1 + k, dtype=np.uint64), dtype=np.uint64)
    accept = philox(seed, place[:, :1], ACCEPT_STREAM, np.arange(k, dtype=np.uint64)[None, :])[0]
    a.accept_noise.reshape(len(a.seeds), k)[:] = uniform(accept)
    tries = np.arange(1 + a.num_tries, dtype=np.uint64)
    select = philox(seed[:, :, None], place[:, :, None], SELECT_STREAM, tries)
    a.select_noise.reshape(len(a.seeds), 1 + k, 1 + a.num_tries, 4)[:] = uniform(np.stack(select, axis=-1))
