"""Traces to detection by source (`benchmarks.detection`): what is learnt from, and when variants are drawn."""

import pytest

from benchmarks.combinations import possible, reached
from benchmarks.detection import Learner, Trial, compared, reached_by, sign_test, trial
from scenarios.random_trace import random_trace
from workers.oracle.tape import Tapes
from workers.record.verdict import Agreed, Stats
from workers.run.check import check


@pytest.fixture(scope="module")
def stats() -> Stats:
    """What the first trace does on the clean engine."""
    verdict = check(random_trace(0).explicit(), Tapes())
    assert isinstance(verdict, Agreed)
    return verdict.stats


@pytest.mark.parametrize("source", ["planes", "probes"])
def test_who_reaches_nothing_new_is_not_kept_and_every_fourth_trace_varies_one_that_was(
    source: str, stats: Stats
) -> None:
    first, second = random_trace(0).explicit(), random_trace(1).explicit()
    learner = Learner(source, 7)
    assert all(learner.trace(second, index) is second for index in range(40))
    learner.learn(first, stats)
    learner.learn(first.model_copy(update={"seed": 1}), stats)
    assert len(learner.kept) == 1
    varied = sum(learner.trace(second, index) is not second for index in range(400))
    assert 70 <= varied <= 130
    assert reached_by(source, first, stats)


def test_a_trial_counts_traces_from_one_and_one_that_finds_nothing_counts_one_more_than_were_tried() -> None:
    assert trial("vllm-38556-backup-token", "mixed", 0, 30).at in range(1, 31)
    assert trial("vllm-39273-draftless-step", "mixed", 0, 1) == Trial("vllm-39273-draftless-step", "mixed", 0, 2)


def test_trials_are_compared_with_those_of_their_seed() -> None:
    found = [
        Trial("a", source, number, at)
        for source, ats in (("mixed", (4, 4, 4)), ("planes", (2, 4, 9)))
        for number, at in enumerate(ats)
    ]
    assert compared(found, "planes", ["a"]) == "faster in 1, slower in 1 of 3 trials (p 1); 1.25 x the traces"
    assert sign_test(0, 6) == pytest.approx(2 / 64)


def test_what_a_shard_reaches_is_possible_and_every_plane_is_among_it() -> None:
    found = reached(1, 0)
    assert found.keys() <= set(possible())
    assert {each.plane for each in possible()} - {each.plane for each in found} <= {"prefix", "rng", "logits"}
