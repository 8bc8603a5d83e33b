"""Generate a step's sampling noise as a function of (seed, position, stream).

Philox4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, Memory, Out, arguments

# One stream per purpose: noise that chose a draft token must not choose its replacement (vLLM PR #54282).
DRAFT_STREAM, ACCEPT_STREAM, SELECT_STREAM = 0, 1, 2


@arguments
class DrawNoise(Arguments):
    """Generate the random numbers for the rejection sampler, row by row.

    Selection in column c uses position + c. Acceptance uses the position of the first column and the draft's index:
    block verification reads numbers of draft tokens that it does not keep, and the next verification must not reuse
    them.
    """

    seeds: Annotated[Memory, In("int64", "B")]
    positions: Annotated[Memory, In("int64", "B", of=("noise_positions",))]
    accept_noise: Annotated[Memory, Out("float32", "B * K")]
    select_noise: Annotated[Memory, Out("float32", "B * (1 + K) * (1 + num_tries) * 4")]
    num_speculative_tokens: int
    num_tries: int


ROUNDS = 10
HALF = 1 << 32


def philox(seed: int, position: int, stream: int, index: int) -> tuple[int, int, int, int]:
    """Return four random 32-bit integers for key `seed` and counter (position, stream, index)."""
    k0, k1 = seed % HALF, seed // HALF % HALF
    c0, c1, c2, c3 = position % HALF, position // HALF % HALF, stream, index
    for _ in range(ROUNDS):
        product_0, product_1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = product_1 // HALF ^ c1 ^ k0, product_1 % HALF, product_0 // HALF ^ c3 ^ k1, product_0 % HALF
        k0, k1 = (k0 + 0x9E3779B9) % HALF, (k1 + 0xBB67AE85) % HALF
    return c0, c1, c2, c3


def uniform(word: int) -> np.float32:
    """Convert the upper 24 bits of a 32-bit integer to a number in [0, 1)."""
    return np.float32((word >> 8) / (1 << 24))


def draw_noise(a: DrawNoise) -> None:
    """Generate the random numbers for the rejection sampler, row by row."""
    k, num_tries = a.num_speculative_tokens, a.num_tries
    for row in range(len(a.seeds)):
        seed, position = int(a.seeds[row]), int(a.positions[row])
        for draft in range(k):
            a.accept_noise[row * k + draft] = uniform(philox(seed, position, ACCEPT_STREAM, draft)[0])
        for column in range(1 + k):
            for index in range(1 + num_tries):
                words = philox(seed, position + column, SELECT_STREAM, index)
                first = ((row * (1 + k) + column) * (1 + num_tries) + index) * 4
                for at in range(4):
                    a.select_noise[first + at] = uniform(words[at])
