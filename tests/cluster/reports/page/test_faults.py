"""Trials of faults on the page: kill matrix and survival curves."""

import re
from pathlib import Path

from cluster.dispatch.job import TrialJob
from cluster.reports.page.faults import kill_matrix, survival_chart
from cluster.storage.store import Store
from tests.cluster.reports.page.campaigns import Page, page_of
from workers.run.trials import Found, Trial

COUNTS, BACKUP = "vllm-38556-accepted-counts", "vllm-38556-backup-token"


def trial(fault: str, number: int, detected: int | None, plane: str = "", baseline: bool = True) -> Trial:
    """Return a trial of ten traces that found its fault at one of them, or did not."""
    return Trial(
        fault=fault,
        number=number,
        traces_max=10,
        baseline=baseline,
        judged=detected or 10,
        reached=3,
        triggered=2,
        steps=30,
        seconds=0.5,
        plane=plane,
        variable="x" if plane else "",
        detected=Found(at=detected),
        against_synchronous=Found(),
        against_correct=Found(at=7 if number else None),
    )


TRIALS = [
    trial(COUNTS, 0, 1, "counts"),
    trial(COUNTS, 1, 4, "kv"),
    trial(BACKUP, 0, 1, "inputs"),
    trial(BACKUP, 1, None),
]


def test_the_kill_matrix_has_the_share_of_trials_by_plane_and_marks_the_expected_one() -> None:
    matrix = kill_matrix(TRIALS)
    assert matrix.columns == ("counts", "inputs", "kv", "outputs: correct", "outputs: sync")
    assert [line.fault for line, _ in matrix.rows] == [COUNTS, BACKUP]
    shares = [[kill.share for kill in kills] for _, kills in matrix.rows]
    assert shares == [[0.5, 0.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.0, 0.5, 0.0]]
    expected = [[kill.is_expected for kill in kills].index(True) for _, kills in matrix.rows]
    assert expected == [0, 1]
    assert matrix.num_always == 1


def ends(path: str) -> list[tuple[float, float]]:
    """Return the end points of the lines in an SVG path."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_a_survival_curve_only_falls_and_ends_at_the_share_that_is_left() -> None:
    chart = survival_chart(TRIALS)
    left = {curve.name: round(curve.left, 2) for curve in chart.curves}
    assert left["every check"] == 0.25
    assert sorted(left.values()) == [0.25, 0.5, 1.0]
    for curve in chart.curves:
        corners = ends(curve.line)
        assert corners == sorted(corners)
        assert corners[0] == (float(chart.left), float(chart.top))
        assert corners[-1][0] == float(chart.right)
        share = 1 - (corners[-1][1] - chart.top) / (chart.bottom - chart.top)
        assert abs(share - curve.left) < 0.01
    assert [text for _, text in chart.across] == ["1", "2", "5", "10"]


def test_without_a_baseline_nothing_is_said_of_outputs() -> None:
    trials = [trial(COUNTS, number, 1, "counts", baseline=False) for number in range(2)]
    assert kill_matrix(trials).columns == ("counts",)
    assert [curve.name for curve in survival_chart(trials).curves] == ["every check"]


def test_the_page_of_a_measurement_has_both(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for each in TRIALS:
            job = TrialJob.of(each.fault, each.number, 10, True)
            store.begin_attempt(job.key, 1, 0)
            store.keep_trial(job, 1, each)
    page = Page(page_of(tmp_path))
    assert [element.text for element in page.all("h1")] == ["Not judged to the end"]
    titles = [str(element.attributes.get("title")) for element in page.all("td")]
    assert f"{COUNTS} in counts: 50 %, expected" in titles
    assert len([each for each in page.all("path") if str(each.attributes.get("class")).startswith("band")]) == 3
