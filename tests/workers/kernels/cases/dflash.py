"""Cases of the block drafter's ops."""

from collections.abc import Iterator

from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.dflash.definition import DflashBlock, DflashContext


def cases() -> Iterator[DflashContext | DflashBlock]:
    """Yield arguments of `dflash_context` and `dflash_block`."""
    for batch, num_proposed in drafting():
        yield made(DflashContext, batch, num_proposed)
        yield made(DflashBlock, batch, num_proposed)
