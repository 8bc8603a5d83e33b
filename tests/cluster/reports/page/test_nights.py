"""Known findings on the report page: only new ones count; disappeared ones are listed."""

import json
from datetime import date
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.nights import read_nights
from cluster.reports.page.render import overall, render_page
from cluster.storage.known import keep_seen
from tests.cluster.reports.page.campaigns import Page, campaign_of, judged
from tests.cluster.reports.page.test_campaign import hunt_of

TODAY, BEFORE = date(2026, 11, 22), date(2026, 11, 20)
KNOWN = "bug: {bug}\nupstream: https://example.org/issues/17\nstatus: expected\n"


def known_folder(folder: Path, *bugs: str) -> Path:
    """Write a folder that marks findings as expected."""
    folder.mkdir(exist_ok=True)
    for number, bug in enumerate(bugs):
        (folder / f"{number}.known.yaml").write_text(KNOWN.format(bug=json.dumps(bug)))
    return folder


def bugs_of(folder: Path) -> list[str]:
    """Return the fingerprints of a campaign."""
    return [bug for campaign in read_campaigns(folder) for bug in campaign.findings]


def test_what_is_known_does_not_count_and_what_is_new_does(tmp_path: Path) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("diverge"), "bb": judged("crash"), "ccc": judged("agree")})
    first, second = bugs_of(folder)
    campaigns = list(read_campaigns(folder))
    some = read_nights(known_folder(tmp_path / "some", first), [first, second], TODAY)
    every = read_nights(known_folder(tmp_path / "every", first, second), [first, second], TODAY)
    assert some is not None
    assert [some.state(bug) for bug in (first, second)] == ["known", "new"]
    assert (overall(campaigns, some).exit_code, overall(campaigns, some).headline) == (1, "2 findings, 1 known")
    assert (overall(campaigns, every).exit_code, overall(campaigns, every).headline) == (0, "Nothing new, 2 known")
    assert read_nights(tmp_path / "none", [first], TODAY) is None


def test_the_page_says_when_a_finding_was_seen_and_what_is_gone(tmp_path: Path) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("diverge")})
    (bug,) = bugs_of(folder)
    known = known_folder(tmp_path / "known", "counts gone_by_now", "counts never_seen")
    keep_seen(known, [bug, "counts gone_by_now"], BEFORE)
    nights = read_nights(known, [bug], TODAY)
    texts = [each.text.strip() for each in Page(render_page(list(read_campaigns(folder)), {}, nights)).elements]
    assert "seen before" in texts
    assert "first seen 2026-11-20, last seen 2026-11-20, in 1 night" in texts
    gone = "expected, https://example.org/issues/17; first seen 2026-11-20, last seen 2026-11-20, in 1 night"
    assert f"counts gone_by_now: {gone}" in texts
    assert not [text for text in texts if "never_seen" in text]


@pytest.mark.parametrize(("num_shards", "is_night", "is_said"), [(1, True, True), (0, True, False), (1, False, False)])
def test_report_says_not_met_of_a_night_that_judged_traces_alone(
    num_shards: int, is_night: bool, is_said: bool, tmp_path: Path
) -> None:
    folder = hunt_of(tmp_path / "night", 1, num_shards)
    if is_night:
        campaign_of(folder / "regressions", {"a": judged("agree")})
    known = known_folder(tmp_path / "known")
    keep_seen(known, ["kv b"], BEFORE)
    assert cli.run(["report", str(folder), "--known", str(known)]) == 0
    page = Page((folder / "report.html").read_text())
    headings = [each.whole for each in page.all("h3")]
    assert any(heading.startswith("Not met this time ") for heading in headings) == is_said
    assert [each.text for each in page.all("li") if each.text.startswith("kv b: ")] != [] or not is_said


def test_a_known_finding_is_no_annotation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("diverge"), "bb": judged("crash")})
    known = known_folder(tmp_path / "known", bugs_of(folder)[0])
    assert cli.run(["report", str(folder), "--known", str(known), "--github", "--timelines", "0"]) == 0
    annotation, last = capsys.readouterr().out.splitlines()
    assert annotation.startswith("::error ")
    assert "title=crashed" in annotation
    assert last.startswith("2 findings, 1 known: ")


def test_a_broken_file_of_known_findings_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("agree")})
    known = known_folder(tmp_path / "known")
    (known / "a.known.yaml").write_text("bug: x\nstatus: maybe\n")
    assert cli.run(["report", str(folder), "--known", str(known)]) == 2
    assert str(known / "a.known.yaml") in capsys.readouterr().err
    assert cli.run(["report", str(folder), "--known", str(tmp_path / "nowhere")]) == 2
    assert "which is not a folder" in capsys.readouterr().err
    assert not (folder / "report.html").exists()
