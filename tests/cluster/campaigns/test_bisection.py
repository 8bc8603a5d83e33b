"""Bisection finds the change between two releases with as few trials as halving takes."""

from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.campaigns.bisection import Bisection, Change, Status


def bisected(shown: list[Status]) -> Bisection:
    bisection = Bisection([f"0.{number}" for number in range(len(shown))])
    while (version := bisection.next()) is not None:
        bisection.record(version, shown[bisection.versions.index(version)])
    return bisection


@given(st.integers(1, 60), st.data(), st.booleans())
def test_the_change_is_found_by_halving(num: int, data: st.DataObject, is_fixed: bool) -> None:
    first = data.draw(st.integers(0, num))
    ends: tuple[Status, Status] = ("bad", "good") if is_fixed else ("good", "bad")
    before, after = ends
    shown = [before] * first + [after] * (num - first)
    bisection = bisected(shown)
    assert len(bisection.known) <= 2 + ceil(log2(max(num - 1, 1)))
    expected = Change(f"0.{first - 1}", f"0.{first}") if 0 < first < num else None
    assert bisection.change() == expected


@given(st.lists(st.sampled_from(["bad", "good", "skipped"]), min_size=1, max_size=12))
def test_bisection_ends_and_reports_only_observed_statuses(shown: list[Status]) -> None:
    bisection = bisected(shown)
    assert all(status == shown[bisection.versions.index(version)] for version, status in bisection.known.items())
    change = bisection.change()
    if change is None:
        ends = [status for status in shown if status != "skipped"]
        assert not ends or ends[0] == ends[-1]
        return
    low, high = bisection.versions.index(change.older), bisection.versions.index(change.newer)
    assert {shown[low], shown[high]} == {"bad", "good"}
    assert all(status == "skipped" for status in shown[low + 1 : high])


def test_all_releases_are_tried_if_all_are_skipped() -> None:
    assert bisected(["skipped"] * 3).known == {f"0.{number}": "skipped" for number in range(3)}


def test_a_release_is_tried_once() -> None:
    bisection = Bisection(["1", "2"])
    bisection.record("2", "good")
    with pytest.raises(AssertionError, match="2 was tried before"):
        bisection.record("2", "bad")
