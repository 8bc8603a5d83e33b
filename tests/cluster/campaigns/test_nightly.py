"""Regressions of a night: unjudged ones are not missed; the first one differs each night."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from cluster.campaigns.driver import drive
from cluster.campaigns.exit_codes import EXIT_AGREED, EXIT_FOUND, EXIT_NOT_JUDGED
from cluster.campaigns.measurement import Measurement, measured_code
from cluster.campaigns.nightly import Regressions, night_number, part_of_the_faults
from cluster.dispatch.pool import InProcessPool
from cluster.dispatch.session import Stop
from cluster.reports.report import findings_text
from cluster.statistics.fault_table import by_fault
from cluster.storage.campaign import Result
from cluster.storage.store import Store
from scenarios.trace import Trace
from tests.cluster.fake_judge import trace
from workers.record.verdict import Judgement, Lost
from workers.targets.devices import faults_on
from workers.targets.target import DEFAULT_CONFIG

FAKE_JUDGE = "tests.cluster.fake_judge:FakeJudge"
FAULT = faults_on(DEFAULT_CONFIG)[0]


def known(what: str, number: int) -> Trace:
    return trace(f"{what}{number}").model_copy(update={"faults": (FAULT,)})


def night(traces: dict[str, Trace], folder: Path, num_judged: int, number: int = 0) -> Regressions:
    """Return the regressions of a night that ends after some judged jobs."""
    with Store(folder) as store:
        replayed = Regressions(traces, store, night=number)
        suite = replayed.suite
        drive(suite, InProcessPool(FAKE_JUDGE), Stop(), None, store, lambda: len(suite.results) < num_judged)
        replayed.seconds = 60.0
    return replayed


def test_unjudged_regressions_of_a_short_night_are_not_missed(tmp_path: Path) -> None:
    # The fake judge finds something with a fault and without.
    traces = {f"{number}.yaml": known("diverge-", number) for number in range(8)}
    replayed = night(traces, tmp_path, 4)
    assert len(replayed.unjudged) == 6
    assert replayed.missed == []
    lines = [*replayed.lines()]
    assert not [line for line in lines if "NOT FOUND" in line]
    (said,) = (line for line in lines if "not judged" in line)
    assert said == (
        "  not judged before the time for it ended: 2.yaml, 3.yaml, 4.yaml, 5.yaml, 6.yaml, and 1 more; "
        "all need about 4 min, which is 40% of --hours 0.17"
    )
    states = {entry.file: (entry.found_in is None, entry.faulty, entry.clean) for entry in replayed.entries()}
    assert states["7.yaml"] == (True, "not judged", "not judged")
    assert states["0.yaml"][1:] == ("diverged", "diverged")


def test_expected_findings_are_counted_separately(tmp_path: Path) -> None:
    traces = {"a.yaml": known("diverge-", 1), "b.yaml": known("diverge-", 2), "c.yaml": trace("agree-1")}
    counts = night(traces, tmp_path, 5).suite.counts()
    assert (counts.done, counts.total, counts.expected, counts.findings) == (3, 3, 2, 2)
    assert findings_text(counts.findings, counts.expected) == "2 found that must be, 2 other findings"
    assert findings_text(0, 79) == "79 found that must be, no other findings"


def test_only_a_judged_fault_can_be_missed(tmp_path: Path) -> None:
    traces = {"a.yaml": known("agree-", 1), "b.yaml": known("agree-", 2)}
    replayed = night(traces, tmp_path / "short", 2)
    assert (replayed.missed, replayed.unjudged, replayed.exit_code()) == (["a.yaml"], ["b.yaml"], EXIT_NOT_JUDGED)
    assert "  NOT FOUND any more: a.yaml" in [*replayed.lines()]
    assert night(traces, tmp_path / "long", 4).missed == ["a.yaml", "b.yaml"]


@pytest.mark.parametrize(
    ("traces", "num_judged", "code"),
    [
        ({"a": trace("agree-1"), "b": trace("agree-2")}, 1, EXIT_AGREED),
        ({"a": trace("agree-1"), "b": trace("agree-2")}, 0, EXIT_NOT_JUDGED),
        ({"a": trace("diverge-1"), "b": trace("agree-2")}, 1, EXIT_FOUND),
        ({}, 0, EXIT_AGREED),
    ],
)
def test_regressions_have_the_exit_code_of_the_judged_ones(
    traces: dict[str, Trace], num_judged: int, code: int, tmp_path: Path
) -> None:
    assert night(traces, tmp_path, num_judged).exit_code() == code


def test_lost_regression_is_neither_missed_nor_failing(tmp_path: Path) -> None:
    replayed = night({"a": known("agree-", 1), "b": known("agree-", 2)}, tmp_path, 0)
    for scenario in replayed.suite.scenarios[:2]:
        judgement = Judgement(verdict=Lost(reason="killed"), trace=scenario.job.trace, schedules=0)
        replayed.suite.results[scenario.job.key] = Result(scenario.job.key, judgement, None)
    assert (replayed.missed, replayed.failing, list(replayed.lost)) == ([], [], ["a"])
    assert replayed.exit_code() == EXIT_NOT_JUDGED
    assert "  lost: a: killed" in [*replayed.lines()]


def test_short_nights_start_at_different_traces(tmp_path: Path) -> None:
    traces = {f"{number:02}": trace(f"agree-{number}") for number in range(50)}
    judged: set[str] = set()
    for number in range(20261121, 20261131):
        replayed = night(traces, tmp_path / str(number), 10, number)
        new = set(traces) - set(replayed.unjudged)
        assert len(new) == 10
        judged |= new
    assert judged == set(traces)


def test_consecutive_nights_measure_every_fault_once() -> None:
    days = [date(2026, 10, 28) + timedelta(days=day) for day in range(130)]
    assert days[-1] > date(2027, 3, 1)
    parts = [part_of_the_faults(night_number(int(f"{day:%Y%m%d}")), 7) for day in days]
    for first in range(len(days) - 6):
        measured = [fault for part in parts[first : first + 7] for fault in part]
        assert sorted(measured) == faults_on(DEFAULT_CONFIG), days[first]
    assert night_number(20261132) == 20261132, "no date is a number as any"


def test_short_nights_start_at_different_faults() -> None:
    every = faults_on(DEFAULT_CONFIG)
    weeks = [[part_of_the_faults(night, 7) for night in range(week, week + 7)] for week in range(0, 84, 7)]
    assert all(sorted(fault for part in week for fault in part) == every for week in weeks)
    # A third of each part is measured before the time ends.
    measured = {fault for week in weeks for part in week for fault in part[: len(part) // 3]}
    assert sorted(measured) == every


def test_trials_that_were_not_run_do_not_count_as_misses(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        measurement = Measurement(faults_on(DEFAULT_CONFIG)[:3], 3, 5, False, store)
    assert measured_code(measurement, list(by_fault(measurement.trials()))) == EXIT_AGREED
    measurement.lost.append("trial 0 of x: its worker died")
    assert measurement.counts().done == 1, "nothing more comes of it"
    assert measured_code(measurement, []) == EXIT_NOT_JUDGED
