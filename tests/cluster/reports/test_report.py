"""Text and JSON reports: one line per agreement, details of findings, no host data."""

import io
import json
import re
from pathlib import Path

import pytest

from cluster.campaigns.planner import Counts
from cluster.reports.report import Line, LineProgress, document, print_report
from tests.cluster.fake_judge import FakeJudge, trace
from workers.record.verdict import Agreed, Judgement, Lost


def line(request: str, **more: str) -> Line:
    """Return the line of a scenario with this name of the first request."""
    return Line(f"scn/{request}.yaml", FakeJudge().judge(trace(request), True), **more)


def printed(*lines: Line, remarks: tuple[str, ...] = ()) -> list[str]:
    """Return the report as it is printed to a file."""
    stream = io.StringIO()
    print_report(lines, stream, remarks)
    return [text.rstrip() for text in stream.getvalue().splitlines()]


def test_a_scenario_that_agrees_is_one_line() -> None:
    assert printed(line("agree"), remarks=("results: out",)) == [
        "scenario        requests  steps  captures  schedules  run-ahead  verdict",
        "scn/agree.yaml         1     12     1,234         46          1  agreed",
        "",
        "1 scenario: 1 agreed",
        "results: out",
    ]


def test_a_scenario_that_agrees_up_to_an_ambiguous_decision_says_so() -> None:
    agreed = FakeJudge().judge(trace("agree"), True)
    assert isinstance(agreed.verdict, Agreed)
    stats = agreed.verdict.stats.model_copy(update={"probes": {"ambiguous_decision": 1}})
    judgement = agreed.model_copy(update={"verdict": Agreed(stats=stats)})
    assert printed(Line("scn/drawn.yaml", judgement))[2:5] == [
        "",
        "AGREED    scn/drawn.yaml",
        "          up to a token that may as well have been another; nothing is compared from there on",
    ]


def test_a_finding_says_what_where_and_how_to_see_it_again() -> None:
    report = printed(line("diverge", artefact="artefacts/r.yaml", replay="specstorm replay out/artefacts/r.yaml"))
    assert report[2:11] == [
        "",
        "DIVERGED  scn/diverge.yaml",
        "          missing order: nothing orders the write by d2h_counts:copy_counts@7 "
        "before the read by host:access@8 (both use accepted_counts)",
        "          request diverge at position 3, commit diverge/0/7, step 9",
        "          state is 8f31, expected 02c7   (plane: recurrent)",
        "          last writers, newest first: compute:recurrent_update@9, compute:state_copy@8",
        "          the race is reported whatever the timing; tokens is wrong under lazy, and no value under eager",
        "          artefacts/r.yaml",
        "          replay: specstorm replay out/artefacts/r.yaml",
    ]


def test_a_scenario_without_a_result_is_counted_as_not_run() -> None:
    report = printed(line("agree"), Line("scn/b.yaml", None))
    assert report[2].endswith("not run")
    assert report[-1] == "2 scenarios: 1 agreed, 1 not run"


def test_no_path_is_cut_however_long_it_is() -> None:
    name = "/".join(["folder"] * 60) + ".yaml"
    assert any(name in text for text in printed(Line(name, line("vacuous").judgement)))


def test_brackets_in_a_message_are_printed_as_they_are() -> None:
    lost = Judgement(verdict=Lost(reason="IndexError: [red] of [0, 1]"), trace=trace("agree"), schedules=0)
    assert "          IndexError: [red] of [0, 1]" in printed(Line("scn/[bold].yaml", lost))
    assert "LOST      scn/[bold].yaml" in printed(Line("scn/[bold].yaml", lost))


def test_the_document_names_scenarios_without_this_hosts_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judgement = line("agree").judgement
    names = [str(tmp_path / "scn" / "a.yaml"), "/somewhere/else/b.yaml", "scn/c.yaml"]
    text = document([Line(name, judgement) for name in names], 0).model_dump_json()
    assert [each["scenario"] for each in json.loads(text)["scenarios"]] == ["scn/a.yaml", "b.yaml", "scn/c.yaml"]
    assert str(tmp_path) not in text


def test_progress_is_a_line_every_ten_seconds_with_rate_findings_and_time_left() -> None:
    stream, now = io.StringIO(), [0.0]
    progress = LineProgress(stream, clock=lambda: now[0])
    for second in range(0, 26):
        now[0] = float(second)
        progress.update(Counts(10 + second * 2, 100, second // 12))
    progress.close()
    assert stream.getvalue().splitlines() == [
        "30/100 scenarios, 2.00/s, 0 findings, about 35 s left",
        "50/100 scenarios, 2.00/s, 1 finding, about 25 s left",
    ]


class Terminal(io.StringIO):
    """Stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def on_terminal(columns: int, monkeypatch: pytest.MonkeyPatch, *lines: Line) -> list[str]:
    """Return the report as printed to a terminal of this width, without colours."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    print_report(lines, stream)
    return [re.sub("\x1b[^m]*m", "", text).rstrip() for text in stream.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("columns", "heads"),
    [
        (80, "scenario requests steps captures schedules run-ahead verdict"),
        (66, "scenario steps captures schedules run-ahead verdict"),
        (50, "scenario schedules run-ahead verdict"),
        (40, "scenario run-ahead verdict"),
        (24, "scenario verdict"),
    ],
)
def test_a_narrow_terminal_keeps_scenario_and_verdict_and_drops_the_rest_in_order(
    columns: int, heads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = on_terminal(columns, monkeypatch, line("agree"), line("diverge"))[:3]
    assert " ".join(table[0].split()) == heads
    assert table[1].split()[0] == "scn/agree.yaml"
    assert [text.split()[-1] for text in table[1:]] == ["agreed", "diverged"]
    assert max(map(len, table)) <= columns


def test_a_name_too_long_for_a_terminal_is_cut_at_its_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    row = on_terminal(40, monkeypatch, Line(f"{'folder/' * 20}last.yaml", line("agree").judgement))[1].split()
    assert row[0].startswith("...")
    assert row[0].endswith("/last.yaml")
    assert row[-1] == "agreed"
