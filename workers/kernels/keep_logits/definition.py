"""Save a copy of the logits before they are processed."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, Memory, Out, arguments


@arguments
class KeepLogits(Arguments):
    """Copy logits before they are processed in place, for raw logprobs."""

    logits: Annotated[Memory, In("float32", "length")]
    kept: Annotated[Memory, Out("float32", "length", of=("raw_logits",))]


def keep_logits(a: KeepLogits) -> None:
    """Copy the logits before they are processed in place."""
    a.kept[:] = a.logits
