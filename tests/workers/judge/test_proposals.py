"""Proposals of two runs: another draft behind the same tokens is reported, unless it was hardly the likeliest."""

import pytest

from scenarios.events import LoadWeights, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.drafter_steps import Proposal, Proposals
from workers.judge.proposals import DRAFT_MARGIN, first_unlike

SUBMIT = Submit(tick=0, request="a", prompt=(1, 2), max_tokens=3)
TRACE = Trace(spec=EngineSpec(), events=(SUBMIT,))


def proposals(
    *drafts: int, tokens: tuple[int, ...] = (1, 2, 3), margin: float = 1.0, at_once: bool = False
) -> Proposals:
    return {(0, len(tokens)): Proposal(4, tokens, drafts, (margin,) * len(drafts), at_once)}


def test_the_same_drafts_behind_the_same_tokens_agree() -> None:
    assert first_unlike(TRACE, proposals(7, 8), proposals(7, 8)) is None


def test_another_draft_is_reported_with_its_step_and_its_position() -> None:
    found = first_unlike(TRACE, proposals(7, 9), proposals(7, 8))
    assert found is not None
    assert (found.plane, found.variable, found.request, found.step) == ("drafts", "proposed", "a", 4)
    assert (found.position, found.expected, found.actual) == (4, 8, 9)


def test_nothing_is_compared_behind_a_near_tie_or_other_tokens_or_of_a_name_used_again() -> None:
    assert first_unlike(TRACE, proposals(7, 9), proposals(7, 8, margin=DRAFT_MARGIN / 2)) is None
    assert first_unlike(TRACE, proposals(7, 9), proposals(7, 8, tokens=(1, 2, 4))) is None
    again = TRACE.model_copy(update={"events": (SUBMIT, SUBMIT.model_copy(update={"tick": 9}))})
    assert first_unlike(again, proposals(7, 9), proposals(7, 8)) is None


@pytest.mark.parametrize(("at_once", "drafts", "is_told"), [(True, 1, False), (True, 2, True), (False, 1, True)])
def test_drafts_that_are_proposed_at_once_are_compared_with_as_many_and_others_with_any_number(
    at_once: bool, drafts: int, is_told: bool
) -> None:
    found = first_unlike(TRACE, proposals(9, 8, at_once=at_once), proposals(*(7, 8)[:drafts], at_once=at_once))
    assert (found is not None) is is_told


def test_drafts_that_are_drawn_are_not_compared() -> None:
    params = SUBMIT.params.model_copy(update={"temperature": 1.0})
    spec = EngineSpec(draft_sampling="probabilistic", drafter="draft_model")
    drawn = Trace(spec=spec, events=(SUBMIT.model_copy(update={"params": params}),))
    assert first_unlike(drawn, proposals(7, 9), proposals(7, 8)) is None
    assert first_unlike(TRACE.model_copy(update={"spec": spec}), proposals(7, 9), proposals(7, 8)) is not None


def test_requests_are_those_of_the_order_in_which_they_come() -> None:
    later = SUBMIT.model_copy(update={"tick": 5})
    trace = TRACE.model_copy(update={"events": (later, SUBMIT.model_copy(update={"request": "b"}))})
    found = first_unlike(trace, proposals(7, 9), proposals(7, 8))
    assert found is not None
    assert found.request == "b"


def test_nothing_is_compared_once_weights_are_other_ones() -> None:
    trace = TRACE.model_copy(update={"events": (SUBMIT, LoadWeights(tick=1, version=1))})
    assert first_unlike(trace, proposals(7, 9), proposals(7, 8)) is None
