"""Make logits undefined, as an event asks for."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class SpoilLogits(Arguments):
    """Set all logits of `rows`, `num_logits` each, to what is not a number."""

    rows: Annotated[Memory, In("int64", "count", of=("spoiled_rows",))]
    logits: Annotated[Memory, InOut("float32", "B * num_logits")]
    num_logits: int
