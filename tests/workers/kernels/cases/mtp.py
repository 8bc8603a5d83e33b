"""Cases of the multi-token-prediction layer's ops."""

from collections.abc import Iterator

from tests.workers.kernels.cases.drafters import drafting, made
from workers.kernels.mtp.definition import MtpChain, MtpPass


def cases() -> Iterator[MtpPass | MtpChain]:
    """Yield arguments of `mtp_pass` and `mtp_chain`."""
    for batch, num_proposed in drafting():
        yield made(MtpPass, batch, num_proposed)
        yield made(MtpChain, batch, num_proposed)
