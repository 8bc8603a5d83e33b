"""Cases of the EAGLE-like drafter's ops."""

from collections.abc import Iterator

from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass


def cases() -> Iterator[DraftFirstPass | DraftChain]:
    """Yield arguments of `draft_first_pass` and `draft_chain`."""
    for batch, num_proposed in drafting():
        yield made(DraftFirstPass, batch, num_proposed)
        yield made(DraftChain, batch, num_proposed)
