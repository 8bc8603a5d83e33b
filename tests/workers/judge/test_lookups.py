"""Drafts that are looked up: those that go on from an earlier place of their request are passed over."""

from typing import Any

import pytest

from workers.judge.judge import End
from workers.judge.lookups import PLANES, Lookups, follows
from workers.record.evidence import Difference
from workers.record.observation import Observation

PROMPT = [5, 6, 7, 9, 5]
LENGTH, DRAFTS = 64, 2


def judged(
    drafts: list[int], longest: int = LENGTH, filled_up: bool = False, **changed: Any
) -> tuple[Difference | None, tuple[str, ...]]:
    """Judge a prompt of one request, behind which 6 is sampled, and a step with drafts behind that."""
    first = {"scheduled_computed": [0], "begun": [(0, PROMPT)], "follows": True}
    second = {"scheduled_computed": [5], "begun": [], "follows": True} | changed
    row = {"starts": [0, 1 + len(drafts)], "drafts": [len(drafts)], "input_ids": [6, *drafts]}
    judge = Lookups(DRAFTS)
    judge.see_log(
        [
            Observation("opened", -1, (), {"max_model_len": longest, "lookups_filled_up": filled_up}),
            Observation("scheduled", 0, (0,), first),
            Observation("inputs", 0, (0,), {"starts": [0, 5], "drafts": [0], "input_ids": PROMPT}),
            Observation("processed", 0, (0,), {"sampled": [[6]]}),
            Observation("scheduled", 1, (0,), second),
            Observation("inputs", 1, (0,), row | {"positions": [5 + index for index in range(1 + len(drafts))]}),
        ]
    )
    return judge.at_end(End(2, {})), judge.planes


def test_drafts_from_behind_an_earlier_equal_token_are_passed_over() -> None:
    assert judged([7, 9]) == (None, PLANES)


@pytest.mark.parametrize("drafts", [[7, 5], [8], [9, 5]])
def test_drafts_from_elsewhere_are_told_with_their_request_and_position(drafts: list[int]) -> None:
    found, _ = judged(drafts)
    assert found is not None
    assert (found.variable, found.request, found.step, found.position) == ("looked_up", "submit 0", 1, 6)


def test_nothing_is_said_of_drafts_where_none_was_looked_up_for_the_longest_length() -> None:
    assert judged([0, 0], longest=6) == (None, ())


def test_nothing_is_said_of_an_engine_that_fills_drafts_up() -> None:
    assert judged([0, 0], filled_up=True) == (None, ())


def test_nothing_is_said_of_drafts_behind_an_empty_plan() -> None:
    assert judged([0, 0], follows=False) == (None, ())


def test_nothing_is_said_of_a_request_that_begins_anew() -> None:
    assert judged([0, 0], begun=[(0, [*PROMPT, 6])]) == (None, ())


def test_drafts_may_stand_right_before_the_end() -> None:
    assert follows([1, 2, 1], [2, 1])
    assert not follows([1, 2, 1], [2, 1, 2])
