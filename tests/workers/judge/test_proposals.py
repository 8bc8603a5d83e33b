"""Proposals of two runs: a different draft after the same tokens is reported."""

import pytest

from scenarios.events import LoadWeights, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.judge.drafter_inputs import Proposal, Proposals
from workers.judge.proposals import DRAFT_MARGIN, first_different_draft

SUBMIT = Submit(tick=0, request="a", prompt=(1, 2), max_tokens=3)
TRACE = Trace(spec=EngineSpec(), events=(SUBMIT,))


def proposals(
    *drafts: int, tokens: tuple[int, ...] = (1, 2, 3), margin: float = 1.0, at_once: bool = False
) -> Proposals:
    return {(0, len(tokens)): Proposal(4, tokens, drafts, (margin,) * len(drafts), at_once)}


def test_same_drafts_after_the_same_tokens_agree() -> None:
    assert first_different_draft(TRACE, proposals(7, 8), proposals(7, 8)) is None


def test_other_draft_is_reported_with_its_step_and_position() -> None:
    found = first_different_draft(TRACE, proposals(7, 9), proposals(7, 8))
    assert found is not None
    assert (found.plane, found.variable, found.request, found.step) == ("drafts", "proposed", "a", 4)
    assert (found.position, found.expected, found.actual) == (4, 8, 9)


def test_drafts_after_a_near_tie_other_tokens_or_a_reused_name_agree() -> None:
    assert first_different_draft(TRACE, proposals(7, 9), proposals(7, 8, margin=DRAFT_MARGIN / 2)) is None
    assert first_different_draft(TRACE, proposals(7, 9), proposals(7, 8, tokens=(1, 2, 4))) is None
    again = TRACE.model_copy(update={"events": (SUBMIT, SUBMIT.model_copy(update={"tick": 9}))})
    assert first_different_draft(again, proposals(7, 9), proposals(7, 8)) is None


@pytest.mark.parametrize(("at_once", "drafts", "is_reported"), [(True, 1, False), (True, 2, True), (False, 1, True)])
def test_drafts_proposed_at_once_are_compared_only_with_as_many(at_once: bool, drafts: int, is_reported: bool) -> None:
    found = first_different_draft(TRACE, proposals(9, 8, at_once=at_once), proposals(*(7, 8)[:drafts], at_once=at_once))
    assert (found is not None) is is_reported


def test_drafts_sampled_at_random_are_not_compared() -> None:
    params = SUBMIT.params.model_copy(update={"temperature": 1.0})
    spec = EngineSpec(draft_sampling="probabilistic", drafter="draft_model")
    drawn = Trace(spec=spec, events=(SUBMIT.model_copy(update={"params": params}),))
    assert first_different_draft(drawn, proposals(7, 9), proposals(7, 8)) is None
    assert first_different_draft(TRACE.model_copy(update={"spec": spec}), proposals(7, 9), proposals(7, 8)) is not None


def test_proposal_belongs_to_the_request_by_order_of_submits() -> None:
    later = SUBMIT.model_copy(update={"tick": 5})
    trace = TRACE.model_copy(update={"events": (later, SUBMIT.model_copy(update={"request": "b"}))})
    found = first_different_draft(trace, proposals(7, 9), proposals(7, 8))
    assert found is not None
    assert found.request == "b"


def test_proposals_after_a_change_of_weights_are_not_compared() -> None:
    trace = TRACE.model_copy(update={"events": (SUBMIT, LoadWeights(tick=1, version=1))})
    assert first_different_draft(trace, proposals(7, 9), proposals(7, 8)) is None
