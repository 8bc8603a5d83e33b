"""The survival estimator, compared with published and hand-made values."""

import pytest

from cluster.statistics.survival import Median, Time, curve, median

# Remission in weeks under 6-MP: Freireich et al., Blood 21 (1963), the worked example of most textbooks.
REMISSION = [
    *(Time(at, True) for at in (6, 6, 6, 7, 10, 13, 16, 22, 23)),
    *(Time(at, False) for at in (6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35)),
]


def test_the_curve_of_a_textbook_example_is_as_published() -> None:
    points = {point.at: point.survival for point in curve(REMISSION)}
    published = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert points == {at: pytest.approx(share, abs=5e-4) for at, share in published.items()}
    first = curve(REMISSION)[0]
    assert [first.low, first.high] == pytest.approx([0.620, 0.952], abs=5e-4)


def test_the_median_of_a_textbook_example_is_as_published() -> None:
    found = median(REMISSION)
    assert (found.at, found.low, found.high) == (23, 13, None)


def test_without_censoring_the_curve_is_the_share_that_is_left() -> None:
    times = [Time(at, True) for at in range(1, 11)]
    assert [point.survival for point in curve(times)] == pytest.approx([1 - at / 10 for at in range(1, 11)])
    assert median(times).at == 5


def test_event_that_never_happens_has_no_median() -> None:
    assert curve([Time(200, False)] * 10) == []
    assert median([Time(200, False)] * 10) == Median(at=None, low=None, high=None)


def test_bounds_hold_the_curve_between_them_and_never_leave_0_and_1() -> None:
    points = curve(REMISSION) + curve([Time(1, True), Time(2, False), Time(2, True), Time(9, True)])
    assert points
    for point in points:
        assert 0 <= point.low <= point.survival <= point.high <= 1
