"""Cases of rejection sampling: every method; statistics are those of the definitions."""

from collections.abc import Iterator
from typing import Any

from tests.workers.kernels.cases.residual_mass import known
from tests.workers.kernels.cases.sampling import FEW, HOSTILE, LARGE, REAL, SINGLE, UNTRIED, Sizes, batch, made
from workers.kernels.residual_mass.definition import ResidualMass, residual_mass
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, STRICT, SYNTHETIC, VerifyDrafts


def cases() -> Iterator[VerifyDrafts]:
    """Yield arguments of `verify_drafts`."""
    for method in (STRICT, STANDARD, SYNTHETIC, BLOCK):
        yield _made(HOSTILE, method)
    for method in (STANDARD, BLOCK):
        yield _made(UNTRIED, method)
    yield _made(FEW, STANDARD)
    yield _made(LARGE, BLOCK)
    for method in (STANDARD, BLOCK):
        yield _made(REAL, method, is_exact=False)
    yield _made(SINGLE, BLOCK, is_certain=True)


def _made(sizes: Sizes, method: int, **kind: Any) -> VerifyDrafts:
    given = known(batch(sizes, 1, method, **kind))
    if method == BLOCK:
        residual_mass(made(ResidualMass, given))
    return made(VerifyDrafts, given)
