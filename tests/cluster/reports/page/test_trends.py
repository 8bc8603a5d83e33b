"""Trends over nights: a line per number, and a row per finding with its nights."""

import json
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.job import TrialJob
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.trends import Trends, trends_of
from cluster.storage.provenance import this_run
from cluster.storage.store import Store
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged, page_of
from tests.cluster.reports.page.test_campaign import hunt_of
from tests.cluster.reports.page.test_faults import BACKUP, COUNTS, trial
from workers.record.verdict import Judgement
from workers.run.trials import Trial


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Write three nights, the last first: one bug disappears, one is new, traces increase."""
    agreed = judged("agree")
    found = [{"a": judged("diverge")}, {"a": judged("diverge"), "bb": judged("crash")}, {"a": agreed}]
    folders = []
    for day, findings in reversed(list(enumerate(found, 1))):
        begun = f"2026-11-2{day}T20:00:00+00:00"
        monkeypatch.setattr("cluster.storage.store.this_run", lambda *args, at=begun: run_at(at, *args))
        folders.append(night(tmp_path / f"night-{day}", day, findings))
    return folders


def run_at(begun: str, *args: object) -> object:
    """Return the provenance of a process that began on a day."""
    return this_run(*args).model_copy(update={"begun": begun})  # type: ignore[arg-type]


def night(folder: Path, day: int, findings: dict[str, Judgement]) -> Path:
    """Write a night with some shards, findings without faults, and timed parts."""
    hunt_of(folder, day, day)
    campaign_of(folder / "regressions", findings)
    # One fault is found in every trial, another in the first two nights alone in one of two.
    with Store(folder) as store:
        for each in (trial(COUNTS, 0, 1, "counts"), trial(COUNTS, 1, 4, "kv"), trial(BACKUP, 0, 1, "inputs")):
            keep_trial(store, each)
        keep_trial(store, trial(BACKUP, 1, 2 if day == 3 else None, "inputs" if day == 3 else ""))
    parts = {"hunt": {"done": 12 * day, "seconds": 6.0}}
    # The second night is of a version that did not time its parts.
    (folder / "report.json").write_text(json.dumps({"parts": parts} if day != 2 else {}))
    return folder


def keep_trial(store: Store, each: Trial) -> None:
    """Store a trial."""
    job = TrialJob.of(each.fault, each.number, each.traces_max, each.baseline)
    store.begin_attempt(job.key, 1, 0)
    store.keep_trial(job, 1, each)


def trends(folders: list[Path]) -> Trends | None:
    return trends_of([campaign for folder in folders for campaign in read_campaigns(folder)])


def test_nights_are_in_the_order_of_their_days_whatever_order_they_are_given_in(nights: list[Path]) -> None:
    told = trends(nights)
    assert told is not None
    assert told.days == ("2026-11-21", "2026-11-22", "2026-11-23")
    texts = {each.name: each.texts for each in told.series}
    assert texts["traces hunted"] == ("12", "24", "36")
    assert texts["traces a second"] == ("2", "-", "6")
    assert texts["findings"] == ("1", "2", "0")
    assert set(texts["probes hit"]) == {"0.971 %"}
    assert told == trends(nights[::-1])


def test_a_line_is_broken_where_a_night_has_no_number(nights: list[Path]) -> None:
    told = trends(nights)
    assert told is not None
    lines = {each.name: each for each in told.series}
    assert lines["traces hunted"].line.count("M") == 1
    assert (lines["traces a second"].line.count("M"), len(lines["traces a second"].dots)) == (2, 2)
    assert lines["traces a second"].dots[-1][2] == "2026-11-23: 6"


def test_a_finding_says_when_it_was_first_and_last_seen(nights: list[Path]) -> None:
    told = trends(nights)
    assert told is not None
    rows = [(row.finding.verdict.kind, row.counts, row.first, row.last, row.num_nights) for row in told.recurring]
    assert rows == [
        ("crashed", (0, 1, 0), "2026-11-22", "2026-11-22", 1),
        ("diverged", (1, 1, 0), "2026-11-21", "2026-11-22", 2),
    ]


def test_faults_that_some_trial_did_not_find_are_told_night_by_night(nights: list[Path]) -> None:
    told = trends(nights)
    assert told is not None
    assert told.missed == ((BACKUP, ("1/2", "1/2", "2/2")),)
    (detected,) = (each.texts for each in told.series if each.name == "trials that found their fault")
    assert detected == ("75 %", "75 %", "100 %")


def test_one_night_or_campaigns_of_another_kind_have_no_trends(nights: list[Path], tmp_path: Path) -> None:
    assert trends(nights[:1]) is None
    others = [campaign_of(tmp_path / name, {"a": judged("agree")}) for name in ("x", "y")]
    assert trends(others) is None
    assert "trends" not in {each.attributes.get("id") for each in Page(page_of(*others)).elements}


def test_the_command_draws_the_trends_of_the_nights_it_is_given(
    nights: list[Path], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folders = [str(folder) for folder in nights]
    assert cli.run(["report", *folders, "--out", str(tmp_path / "page"), "--timelines", "0"]) == 0
    assert capsys.readouterr().out.startswith("2 findings: ")
    page = Page((tmp_path / "page" / "report.html").read_text())
    assert "trends" in {each.attributes.get("id") for each in page.all("section")}
    labels = [str(each.attributes.get("aria-label")) for each in page.all("svg")]
    assert "traces hunted, night by night: 12; 24; 36" in labels
    links = {str(each.attributes["href"])[1:] for each in page.all("a")}
    assert links <= {each.attributes.get("id") for each in page.elements}
