"""Make logits NaN or infinite, and drafts invalid, for the events that spoil them."""

from typing import Annotated

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class SpoilLogits(Arguments):
    """Set all logits of `rows`, `num_logits` each, to NaN."""

    rows: Annotated[Memory, In("int64", "count", of=("spoiled_rows",))]
    logits: Annotated[Memory, InOut("float32", "B * num_logits")]
    num_logits: int


@arguments
class SpoilOneLogit(Arguments):
    """Set the logit at a place to infinity or NaN: one of the target's, or one that a draft was drawn from."""

    logits: Annotated[Memory, InOut("float32", "num_logits", of=("draft_logits",))]
    place: int
    is_infinite: int


@arguments
class SpoilOneDraft(Arguments):
    """Set the draft at a place to an id, which may be outside the vocabulary."""

    draft_tokens: Annotated[Memory, InOut("int64", "num_drafts")]
    place: int
    token: int
