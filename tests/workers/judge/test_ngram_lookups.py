"""N-gram lookups: drafts after an earlier equal token are accepted, others are reported."""

from typing import Any

import pytest

from tests.workers.judge.histories import Part, first_of, opened, reported, shown, step_of
from workers.judge.history import History
from workers.judge.ngram_lookups import PLANES, NgramLookups, follows
from workers.record.engine_records import EngineRecord

PROMPT = [5, 6, 7, 9, 5]


def lookups(drafts: list[int], plan: Any = (), **sizes: Any) -> list[EngineRecord]:
    """Return a step of a prompt that samples token 6, and a step with drafts after it."""
    return [
        opened(**{"max_model_len": 64, **sizes}),
        *step_of(0, Part(0, 0, PROMPT, [1, 2], begun=PROMPT)),
        shown("processed", 0, [0], sampled=[[6]]),
        *step_of(1, Part(0, 5, [6, *drafts], [1, 2], len(drafts)), **dict(plan)),
    ]


@pytest.mark.parametrize("drafts", [[7, 9], [7, 5], [8], [9, 5]])
def test_lookup_of_tokens_after_no_earlier_equal_token_is_reported(drafts: list[int]) -> None:
    seen, expected = lookups(drafts), ("looked_up", "submit 0", 1, 6) if drafts != [7, 9] else None
    found = first_of(NgramLookups(2), seen)
    assert reported(found, "variable", "request", "step", "position") == expected
    assert NgramLookups(2).compared(History.of(seen)) == PLANES


@pytest.mark.parametrize(
    "seen",
    [
        lookups([0, 0], max_model_len=6),
        lookups([0, 0], lookups_filled_up=True),
        lookups([0, 0], {"follows": False}),
        lookups([0, 0], {"begun": [(0, [*PROMPT, 6])]}),
    ],
    ids=["near the longest length", "padded drafts", "after an empty plan", "of a resumed request"],
)
def test_uncertain_lookup_is_not_compared(seen: list[EngineRecord]) -> None:
    assert (first_of(NgramLookups(2), seen), NgramLookups(2).compared(History.of(seen))) == (None, ())


def test_drafts_may_be_the_last_known_tokens() -> None:
    assert follows([1, 2, 1], [2, 1])
    assert not follows([1, 2, 1], [2, 1, 2])
