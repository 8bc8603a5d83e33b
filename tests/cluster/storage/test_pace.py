"""Estimated time left: a range, or None without a reliable estimate."""

import random

import pytest

from cluster.reports.report import left_texts
from cluster.storage.pace import Pace, RemainingTime


def pace_of(seconds: list[float], kept: int = 0) -> Pace:
    """Return the pace of units that took these seconds, one after the other."""
    pace, now = Pace(), 0.0
    pace.note(now, kept)
    for done, each in enumerate(seconds, kept + 1):
        now += each
        pace.note(now, done)
    return pace


def test_an_even_pace_is_one_number_and_an_uneven_one_a_range() -> None:
    assert left_texts(pace_of([0.5] * 40).left(80)) == ["about 20 s left"]
    assert left_texts(pace_of([1.0] * 20 + [4.0] * 10).left(40)) == ["10 s to 40 s left"]
    assert left_texts(pace_of([0.5] * 40, kept=100).left(180)) == ["about 20 s left"]


@pytest.mark.parametrize(
    ("seconds", "total"),
    [([1.0] * 7, 100), ([], 100), ([1.0] * 40, None), ([0.1] * 60 + [40.0], 100)],
)
def test_no_time_left_without_a_reliable_estimate(seconds: list[float], total: int | None) -> None:
    assert left_texts(pace_of(seconds).left(total)) == []


def test_a_long_run_keeps_few_moments_and_the_same_pace() -> None:
    left = pace_of([0.25] * 5000).left(6000)
    assert left == RemainingTime(low=250, high=250)


def test_units_of_uneven_cost_mostly_stay_within_the_range() -> None:
    within = told = 0
    for seed in range(40):
        draw = random.Random(seed)
        seconds = [draw.lognormvariate(0, 1) for _ in range(200)]
        for done in (50, 100, 150):
            left = pace_of(seconds[:done]).left(200)
            if left is not None:
                told += 1
                within += 0.9 * left.low <= sum(seconds[done:]) <= 1.1 * left.high
    assert told > 100
    assert within > 0.75 * told
