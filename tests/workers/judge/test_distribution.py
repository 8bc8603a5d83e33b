"""G-tests of counts against a distribution and of two samples; their false-alarm rates."""

from collections import Counter

import pytest

from scenarios.draw import below
from workers.judge.distribution import Outcome, chance_of, g_test, two_sample_g_test


@pytest.mark.parametrize(
    ("statistic", "degrees", "chance"),
    [(3.841459, 1, 0.05), (5.991465, 2, 0.05), (18.307038, 10, 0.05), (10.827566, 1, 0.001), (0.0, 4, 1.0)],
)
def test_chance_of_matches_chi_square_table(statistic: float, degrees: int, chance: float) -> None:
    assert chance_of(statistic, degrees) == pytest.approx(chance, rel=1e-4)


def test_g_test_is_0_for_expected_counts_infinite_for_impossible() -> None:
    law: dict[Outcome, float] = {(0,): 0.5, (1,): 0.25, (2,): 0.25}
    assert g_test({(0,): 50, (1,): 25, (2,): 25}, law) == (0.0, 2)
    assert chance_of(*g_test({(0,): 100, (3,): 1}, law)) == 0
    assert chance_of(*g_test({(0,): 80, (1,): 10, (2,): 10}, law)) < 1e-6


def test_g_test_pools_rare_outcomes() -> None:
    law: dict[Outcome, float] = {(0,): 0.9, (1,): 0.04, (2,): 0.03, (3,): 0.03}
    assert g_test({(0,): 90, (1,): 10}, law)[1] == 1


def test_two_sample_g_test_is_0_for_equal_shares() -> None:
    first: dict[Outcome, int] = {(0,): 40, (1,): 20}
    second: dict[Outcome, int] = {(0,): 80, (1,): 40}
    assert two_sample_g_test(first, second) == (0.0, 1)
    assert two_sample_g_test(second, first) == (0.0, 1)


def test_two_sample_g_test_matches_contingency_table() -> None:
    # 2 x 2: each cell n log(n / expected), where 45 is expected everywhere in the first column and 55 in the second.
    statistic, degrees = two_sample_g_test({(0,): 30, (1,): 70}, {(0,): 60, (1,): 40})
    assert statistic == pytest.approx(18.4803, abs=1e-3)
    assert degrees == 1


def test_two_sample_g_test_counts_outcome_missing_in_one_sample() -> None:
    statistic, degrees = two_sample_g_test({(0,): 50, (1,): 50}, {(0,): 50, (2,): 50})
    assert degrees == 2
    assert chance_of(statistic, degrees) < 1e-20


def test_two_sample_g_test_pools_rare_outcomes() -> None:
    assert two_sample_g_test({(0,): 90, (1,): 4, (2,): 3}, {(0,): 90, (3,): 4, (4,): 3})[1] == 1
    assert two_sample_g_test({(0,): 3}, {(1,): 3})[1] == 0
    assert chance_of(*two_sample_g_test({(0,): 3}, {(1,): 3})) == 1


def sample(number: int, size: int, skew: int) -> Counter[Outcome]:
    """Return random outcomes; small ones are more likely with a larger `skew`."""
    drawn = (below(100, number, "sample", "", index) * below(skew, number, "skew", "", index) for index in range(size))
    return Counter((value // 100,) for value in drawn)


def test_two_sample_g_test_fails_at_nominal_rate() -> None:
    chances = [
        chance_of(*two_sample_g_test(sample(2 * number, 150, 20), sample(2 * number + 1, 100, 20)))
        for number in range(200)
    ]
    shares = {level: sum(chance < level for chance in chances) / len(chances) for level in (0.01, 0.1, 0.5)}
    assert shares[0.01] <= 0.03
    assert 0.05 <= shares[0.1] <= 0.16
    assert 0.4 <= shares[0.5] <= 0.62


def test_two_sample_g_test_fails_for_different_distributions() -> None:
    assert chance_of(*two_sample_g_test(sample(0, 600, 20), sample(1, 600, 10))) < 1e-9
