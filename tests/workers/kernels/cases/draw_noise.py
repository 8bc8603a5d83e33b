"""Cases of the sampler's random numbers: extreme seeds and positions."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import floats
from workers.kernels.draw_noise.definition import DrawNoise


def cases() -> Iterator[DrawNoise]:
    """Yield arguments of `draw_noise`."""
    for num_rows, k, num_tries in ((1, 0, 0), (3, 4, 2), (7, 1, 1)):
        seeds = np.array([(1 << 63) - 1, 0, -1, 1, 1 << 32, 0x1234_5678_9ABC_DEF0, 7])[:num_rows]
        yield DrawNoise(
            seeds=seeds,
            positions=np.array([(1 << 32) - 2, 0, 5, 1 << 40, 3, (1 << 16) - 1, 1])[:num_rows],
            accept_noise=floats(num_rows * k),
            select_noise=floats(num_rows * (1 + k) * (1 + num_tries) * 4),
            num_speculative_tokens=k,
            num_tries=num_tries,
        )
