"""What runs commit follows the target under every method, whoever drafts; a sampler that leaks 2 % is found."""

from collections import Counter

import pytest

from benchmarks.distribution import (
    CASES,
    KINDS,
    MUST_HAPPEN,
    WINDOWS,
    Case,
    Outcome,
    chance_of,
    g_test,
    law_of,
    results,
    trace_of,
)

LEAK = "specstorm-sampler-leak"


@pytest.mark.parametrize(
    ("statistic", "degrees", "chance"),
    [(3.841459, 1, 0.05), (5.991465, 2, 0.05), (18.307038, 10, 0.05), (10.827566, 1, 0.001), (0.0, 4, 1.0)],
)
def test_chances_are_those_of_chi_square(statistic: float, degrees: int, chance: float) -> None:
    assert chance_of(statistic, degrees) == pytest.approx(chance, rel=1e-4)


def test_counts_as_expected_have_no_statistic_and_what_cannot_be_is_failed_at_once() -> None:
    law: dict[Outcome, float] = {(0,): 0.5, (1,): 0.25, (2,): 0.25}
    assert g_test({(0,): 50, (1,): 25, (2,): 25}, law) == (0.0, 2)
    assert chance_of(*g_test({(0,): 100, (3,): 1}, law)) == 0
    assert chance_of(*g_test({(0,): 80, (1,): 10, (2,): 10}, law)) < 1e-6


def test_rare_outcomes_are_counted_together() -> None:
    law: dict[Outcome, float] = {(0,): 0.9, (1,): 0.04, (2,): 0.03, (3,): 0.03}
    assert g_test({(0,): 90, (1,): 10}, law)[1] == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_laws_add_up(case: Case) -> None:
    spec = trace_of(case, KINDS, 0, 4, ()).spec
    for kind in KINDS:
        for window in WINDOWS:
            assert sum(law_of(kind, window, spec).values()) == pytest.approx(1.0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.name))
def test_committed_tokens_follow_the_target_beside_neighbours_preemptions_and_reorders(case: Case) -> None:
    happened: Counter[str] = Counter()
    assert not [result.line() for result in results(case, 480, (), happened) if result.is_failed]
    assert [probe for probe in MUST_HAPPEN if not happened[probe]] == []


def test_a_sampler_that_leaks_is_found_and_the_sound_one_passes_as_often() -> None:
    kinds = KINDS[:1]
    assert any(result.is_failed for result in results(CASES[0], 2000, (LEAK,), Counter(), kinds))
    assert not any(result.is_failed for result in results(CASES[0], 2000, (), Counter(), kinds))
