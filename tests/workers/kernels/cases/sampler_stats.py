"""Cases of the sampler's statistics."""

from collections.abc import Iterator

from tests.workers.kernels.cases.sampling import FEW, HOSTILE, LARGE, REAL, SINGLE, batch, made
from workers.kernels.sampler_stats.definition import SamplerStats

# Sums of weights that are not powers of two are rounded, each order in its own way.
TOLERANCE = {"block_sum": 1e-5, "tile_sum": 1e-5}


def cases() -> Iterator[SamplerStats]:
    """Yield arguments of `sampler_stats`."""
    for sizes in (HOSTILE, FEW, LARGE):
        yield made(SamplerStats, batch(sizes, seed=1))
    yield made(SamplerStats, batch(REAL, seed=1, is_exact=False))
    yield made(SamplerStats, batch(SINGLE, seed=1, is_certain=True))
