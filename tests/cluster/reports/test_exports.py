"""JUnit XML, SARIF and annotations stay valid for hostile texts."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest

from cluster.cli import main as cli
from cluster.dispatch.job import build
from cluster.reports.annotations import annotations
from cluster.reports.junit import junit_xml
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.page.render import groups_of, overall
from cluster.reports.sarif import sarif_json
from tests.cluster.reports.page.campaigns import campaign_of, judged
from workers.record.evidence import Site
from workers.record.verdict import NO_STATS, Crashed

HOSTILE = "]]>&<a>\x00\x1b[31m\ud800::error::%0A,file=x:\r\nsecond line"
ALL = ("agree", "diverge", "crash", "stuck", "vacuous")


def everything(folder: Path) -> Path:
    """Write a campaign with one scenario of each verdict and a crash with a hostile message."""
    judgements = {f"{'x' * at}{name}": judged(name) for at, name in enumerate(ALL)}
    crash = Crashed(stats=NO_STATS, error=HOSTILE.replace("\ud800", ""), where=Site(function="here"))
    return campaign_of(folder, {**judgements, "a hostile one, \u202e": judged("crash", crash)})


def test_junit_has_a_case_a_scenario_and_counts_what_failed(tmp_path: Path) -> None:
    root = ElementTree.fromstring(junit_xml(list(read_campaigns(everything(tmp_path)))).encode())
    assert (root.tag, root.get("tests"), root.get("failures"), root.get("errors")) == ("testsuites", "6", "4", "1")
    (suite,) = root
    outcomes = {str(case.get("name")): [child.tag for child in case] for case in suite}
    assert outcomes["agree"] == []
    assert outcomes["xdiverge"] == ["failure"]
    assert outcomes["xxxxvacuous"] == ["error"]
    assert outcomes[r"a hostile one, \u202e"] == ["failure"]
    failures = [case.find("failure") for case in suite if case.find("failure") is not None]
    assert all("replay: specstorm replay" in str(failure.text) for failure in failures if failure is not None)


def sarif_of(folder: Path) -> Any:
    """Return the values of the SARIF log of a campaign."""
    campaigns = list(read_campaigns(folder))
    return json.loads(sarif_json([group.finding for group in groups_of(campaigns)], overall(campaigns)))


def test_sarif_has_a_result_a_finding_with_a_rule_a_place_and_a_lasting_fingerprint(tmp_path: Path) -> None:
    folder = everything(tmp_path)
    log = sarif_of(folder)
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver, results = run["tool"]["driver"], run["results"]
    assert driver["semanticVersion"] == build()
    assert run["invocations"] == [{"executionSuccessful": True, "exitCode": 1}]
    assert len(results) == len({json.dumps(each["partialFingerprints"]) for each in results}) == 4
    for result in results:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        (location,) = result["locations"]
        artefact = folder / "artefacts" / Path(unquote(location["physicalLocation"]["artifactLocation"]["uri"])).name
        assert artefact.is_file()
    assert sarif_of(folder) == log


def test_a_campaign_without_findings_is_a_log_without_results(tmp_path: Path) -> None:
    (run,) = sarif_of(campaign_of(tmp_path, {"a": judged("agree")}))["runs"]
    assert run["results"] == run["tool"]["driver"]["rules"] == []


def test_an_annotation_is_one_line_that_no_text_can_end(tmp_path: Path) -> None:
    findings = [group.finding for group in groups_of(list(read_campaigns(everything(tmp_path))))]
    lines = list(annotations(findings))
    assert len(lines) == 4
    for line in lines:
        assert line.splitlines() == [line]
        assert line.startswith("::error ")
        properties, data = line.removeprefix("::error ").split("::", 1)
        assert [part.partition("=")[0] for part in properties.split(",")] == ["file", "line", "title"]
        assert data
    assert any("::error%3A%3A%250A%2Cfile" in line or "%3A%3Aerror%3A%3A%250A%2Cfile" in line for line in lines)


def test_the_command_writes_all_and_prints_annotations_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("diverge"), "bb": judged("agree")})
    out = tmp_path / "elsewhere"
    assert cli.run(["report", str(folder), "--out", str(out), "--github", "--timelines", "0"]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("::error file=")
    assert last == f"1 finding: {out / 'report.html'}"
    assert sorted(path.name for path in out.iterdir()) == ["junit.xml", "report.html", "report.sarif"]
    assert cli.run(["report", str(folder), "--timelines", "0"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"1 finding: {folder / 'report.html'}"]


def test_a_folder_that_cannot_be_written_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = campaign_of(tmp_path / "run", {"a": judged("agree")})
    (tmp_path / "file").write_text("")
    assert cli.run(["report", str(folder), "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
