"""Cases of the medusa heads."""

from collections.abc import Iterator

from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.medusa.definition import MedusaHeads


def cases() -> Iterator[MedusaHeads]:
    """Yield arguments of the op `medusa_heads`."""
    for batch, num_proposed in drafting():
        yield made(MedusaHeads, batch, num_proposed)
