"""Cases of poisoning: no block, some, the last of the pool; garbage after the named blocks."""

from collections.abc import Iterator

import numpy as np

from tests.workers.kernels.cases.batch import INT_POISON
from workers.kernels.poison.definition import Poison, PoisonStates


def cases() -> Iterator[Poison | PoisonStates]:
    """Yield blocks of 1, 3 and 16 tokens, and windows of 1 and 3 inputs."""
    for size, named in ((1, [5]), (3, [0, 4, 1]), (16, []), (16, [2, 5]), (16, [*range(1, 21)])):
        yield Poison(
            blocks=np.array([*named, INT_POISON, 3]),
            kv=np.arange(22 * size, dtype=np.uint64),
            drafter_kv=np.arange(22 * size, dtype=np.uint64) + 1000,
            num_blocks=len(named),
            block_size=size,
        )
    for length, named in ((1, [5, 0]), (3, [2]), (2, []), (3, [*range(1, 99)])):
        yield PoisonStates(
            blocks=np.array([*named, INT_POISON, 3]),
            block_states=np.arange(100, dtype=np.uint64),
            block_windows=np.arange(100 * length, dtype=np.uint64),
            num_blocks=len(named),
            window_length=length,
        )
