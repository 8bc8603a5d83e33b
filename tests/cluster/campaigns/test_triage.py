"""Triage of a finding: fatal or late candidates, known bugs, unconfirmed findings."""

import pytest

from cluster.campaigns.triage import Triage
from cluster.dispatch.coordinator import Record
from cluster.dispatch.job import Answer, AnyJob, Job, TryJob
from cluster.storage.hunts import FindingState
from tests.cluster.campaigns.hunt.fakes import DEATH, DEATHS, buggy, diverged, hit
from workers.record.evidence import fact
from workers.record.verdict import NO_STATS, Agreed, Diverged, Judgement, Lost, with_known_causes


def test_candidate_that_kills_its_worker_does_not_block_others() -> None:
    triage = Triage(FindingState.of(hit("x"), 0))

    def answer(job: AnyJob) -> Answer | Lost:
        if isinstance(job, TryJob) and any(len(each.events) == 2 for each in job.candidates):
            return DEATH
        return buggy(job)

    while triage.is_open:
        for task in triage.tasks(2):
            result = answer(task.job)
            triage.take(Record(task.job.key, 1, result, DEATHS if isinstance(result, Lost) else ()))
    judgement = triage.state.smallest
    assert judgement is not None
    assert len(judgement.trace.events) == 1


def test_candidates_lost_after_the_last_round_change_nothing() -> None:
    triage = Triage(FindingState.of(hit("x"), 0), limit=16)
    (judge,) = triage.tasks(2)
    triage.take(Record(judge.job.key, 1, buggy(judge.job)))
    first, second = triage.tasks(2)
    assert isinstance(first.job, TryJob)
    triage.take(Record(first.job.key, 1, buggy(first.job)))
    while triage.state.stage == "shrink":
        for task in triage.tasks(2):
            triage.take(Record(task.job.key, 1, buggy(task.job)))
    (confirm,) = triage.tasks(2)
    triage.take(Record(second.job.key, 1, DEATH, DEATHS))
    assert triage.is_open
    triage.take(Record(confirm.job.key, 1, buggy(confirm.job)))
    judgement = triage.state.smallest
    assert judgement is not None
    assert len(judgement.trace.events) == 1


def test_finding_of_a_known_bug_is_not_shrunk() -> None:
    triage = Triage(FindingState.of(hit("x"), 0))
    (judge,) = triage.tasks(2)
    answer = buggy(judge.job)
    assert isinstance(answer, Judgement)
    assert isinstance(answer.verdict, Diverged)
    told = answer.model_copy(update={"verdict": with_known_causes(answer.verdict, ("vllm_a",))})
    triage.take(Record(judge.job.key, 1, told))
    assert not triage.is_open
    assert triage.state.judgement == told
    assert triage.tasks(2) == []


@pytest.mark.parametrize("was_confirmed", [True, False])
def test_unconfirmed_long_finding_needs_a_confirmed_small_trace(was_confirmed: bool) -> None:
    why = None if was_confirmed else fact("unconfirmed", steps=200, steps_max=100)
    verdict = diverged("x").model_copy(update={"unconfirmed": why})
    triage = Triage(FindingState.of(hit("x").model_copy(update={"verdict": verdict}), 0))
    raised = Lost(reason="the worker raised Unconfirmed: a definition is wrong")
    (judge,) = triage.tasks(2)
    assert isinstance(judge.job, Job)
    triage.take(Record(judge.job.key, 1, Judgement(verdict=verdict, trace=judge.job.trace, schedules=1)))
    while triage.is_open:
        for task in triage.tasks(2):
            triage.take(Record(task.job.key, 1, raised if triage.state.stage == "confirm" else buggy(task.job)))
    assert triage.state.is_refuted is not was_confirmed
    judgement = triage.state.judgement
    assert judgement is not None
    assert judgement.verdict == (verdict if was_confirmed else raised)


RAISED = Lost(reason="the worker raised Unconfirmed: a definition is wrong")


def _unconfirmed() -> Triage:
    """Return the triage of a finding that still has to be confirmed."""
    verdict = diverged("x").model_copy(update={"unconfirmed": fact("unconfirmed_yet")})
    return Triage(FindingState.of(hit("x").model_copy(update={"verdict": verdict}), 0))


def test_an_unconfirmed_finding_is_dropped_if_its_first_judgement_does_not_confirm_it() -> None:
    for result, reason in (
        (RAISED, RAISED.reason),
        (None, "the finding is not reproduced when its trace is judged alone"),
    ):
        triage = _unconfirmed()
        assert triage.state.is_unconfirmed
        (judge,) = triage.tasks(2)
        assert isinstance(judge.job, Job)
        agreed = Judgement(verdict=Agreed(stats=NO_STATS), trace=judge.job.trace, schedules=1)
        triage.take(Record(judge.job.key, 1, result or agreed))
        assert not triage.is_open
        assert triage.state.is_refuted
        assert triage.state.judgement is not None
        assert triage.state.judgement.verdict == Lost(reason=reason)


def test_an_unconfirmed_finding_is_confirmed_by_its_first_judgement() -> None:
    triage = _unconfirmed()
    (judge,) = triage.tasks(2)
    triage.take(Record(judge.job.key, 1, buggy(judge.job)))
    assert (triage.is_open, triage.state.is_unconfirmed) == (True, False)
    while triage.is_open:
        for task in triage.tasks(2):
            triage.take(Record(task.job.key, 1, RAISED if triage.state.stage == "confirm" else buggy(task.job)))
    assert triage.state.judgement is not None
    assert triage.state.judgement.verdict == diverged("x")


def test_an_unconfirmed_finding_stays_if_its_worker_is_killed_at_the_deadline() -> None:
    triage = _unconfirmed()
    (judge,) = triage.tasks(2)
    triage.take(Record(judge.job.key, 1, DEATH, DEATHS))
    assert not triage.is_open
    assert triage.state.is_unconfirmed
