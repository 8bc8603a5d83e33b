"""Corrupt logits (NaN, inf) or draft tokens (invalid ids), for trace events."""

from typing import Annotated

import numpy as np

from workers.kernels.argument import Arguments, In, InOut, Memory, arguments


@arguments
class SpoilLogits(Arguments):
    """Set all logits of `rows`, `num_logits` each, to NaN."""

    rows: Annotated[Memory, In("int64", "count", of=("spoiled_rows",))]
    logits: Annotated[Memory, InOut("float32", "B * num_logits")]
    num_logits: int


@arguments
class SpoilOneLogit(Arguments):
    """Set one logit to infinity or NaN: of the target, or of a draft distribution."""

    logits: Annotated[Memory, InOut("float32", "num_logits", of=("draft_logits",))]
    place: int
    is_infinite: int


@arguments
class SpoilOneDraft(Arguments):
    """Set one draft token to the id that a trace event asks for, valid or not."""

    draft_tokens: Annotated[Memory, InOut("int64", "num_drafts")]
    place: int
    token: int


def spoil_logits(a: SpoilLogits) -> None:
    """Set all logits of `rows`, `num_logits` each, to NaN."""
    for row in a.rows:
        a.logits[row * a.num_logits : (row + 1) * a.num_logits] = np.nan


def spoil_one_logit(a: SpoilOneLogit) -> None:
    """Set one logit to infinity or NaN, as a trace event asks for."""
    a.logits[a.place] = np.inf if a.is_infinite else np.nan


def spoil_one_draft(a: SpoilOneDraft) -> None:
    """Set one draft token to the id that a trace event asks for."""
    a.draft_tokens[a.place] = a.token
