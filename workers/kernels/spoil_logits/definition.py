"""Definition of spoiled logits: a loop that makes each of a row's logits NaN."""

import numpy as np

from workers.kernels.spoil_logits.arguments import SpoilLogits, SpoilOneDraft, SpoilOneLogit


def spoil_logits(a: SpoilLogits) -> None:
    """Set all logits of `rows`, `num_logits` each, to NaN."""
    for index in range(len(a.rows)):
        row = int(a.rows[index])
        for offset in range(a.num_logits):
            a.logits[row * a.num_logits + offset] = np.nan


def spoil_one_logit(a: SpoilOneLogit) -> None:
    """Set the logit at a place to infinity or NaN."""
    a.logits[a.place] = np.inf if a.is_infinite else np.nan


def spoil_one_draft(a: SpoilOneDraft) -> None:
    """Set the draft at a place to an id."""
    a.draft_tokens[a.place] = a.token
