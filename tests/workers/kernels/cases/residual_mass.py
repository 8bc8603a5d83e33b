"""Cases of the residual sums of block verification; statistics are those of the definition."""

from collections.abc import Iterator
from typing import Any

from tests.workers.kernels.cases.sampling import HOSTILE, LARGE, REAL, SINGLE, batch, made
from workers.kernels.residual_mass.definition import ResidualMass
from workers.kernels.sampler_stats.definition import SamplerStats, sampler_stats

# A quotient is rounded, and so are sums of its multiples.
TOLERANCE = {"residual": 1e-5}


def known(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the op with the statistics of their logits."""
    sampler_stats(made(SamplerStats, given))
    return given


def cases() -> Iterator[ResidualMass]:
    """Yield arguments of `residual_mass`."""
    for sizes in (HOSTILE, LARGE):
        yield made(ResidualMass, known(batch(sizes, seed=1)))
    yield made(ResidualMass, known(batch(REAL, seed=1, is_exact=False)))
    yield made(ResidualMass, known(batch(SINGLE, seed=1, is_certain=True)))
