"""Corrupt logits (NaN, inf) or draft tokens (invalid ids), as trace events ask."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class SpoilLogits(Arguments):
    """Set all `num_logits` logits of each row in `rows` to NaN."""

    rows: Annotated[Memory, In("int64", "count", of=("spoiled_rows",))]
    logits: Annotated[Memory, InOut("float32", "B * num_logits")]
    num_logits: int


@arguments
class SpoilOneLogit(Arguments):
    """Set one target or draft logit to infinity or NaN."""

    logits: Annotated[Memory, InOut("float32", "num_logits", of=("draft_logits",))]
    place: int
    is_infinite: int


@arguments
class SpoilOneDraft(Arguments):
    """Replace one draft token by another id, valid or not."""

    draft_tokens: Annotated[Memory, InOut("int64", "num_drafts")]
    place: int
    token: int


def spoil_logits(a: SpoilLogits) -> None:
    """Set all `num_logits` logits of each row in `rows` to NaN."""
    for row in a.rows:
        a.logits[row * a.num_logits : (row + 1) * a.num_logits] = np.nan


def spoil_one_logit(a: SpoilOneLogit) -> None:
    """Set one logit to infinity or NaN."""
    a.logits[a.place] = np.inf if a.is_infinite else np.nan


def spoil_one_draft(a: SpoilOneDraft) -> None:
    """Replace one draft token by another id."""
    a.draft_tokens[a.place] = a.token
