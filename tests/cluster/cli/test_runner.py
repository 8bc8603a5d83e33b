"""Options of a test runner: selection, listing, limits on findings and time, verbosity."""

import json
from pathlib import Path
from typing import TypeAlias

import pytest

from cluster.cli import main as cli
from cluster.cli.selection import SelectionError, matcher
from scenarios.probes import PROBES
from tests.cluster.cli.test_commands import FOUND
from tests.cluster.cli.test_edge import scenarios
from tests.cluster.documents import document_of
from workers.faults.registry import FAULTS

Capture: TypeAlias = pytest.CaptureFixture[str]
MATCHES = [
    ("abort", "abort storm.yaml", True),
    ("ABORT", "abort storm.yaml", True),
    ("abort and storm", "abort_storm", True),
    ("abort and not storm", "abort_storm", False),
    ("not (abort or storm)", "tight", True),
    ("a or b and c", "a", True),
    ("(a or b) and c", "a", False),
    ("not not a", "a", True),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three scenarios below `scn`, in which the command runs."""
    scenarios(tmp_path, 3)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("text", "name", "fits"), MATCHES)
def test_names_are_matched_by_words_and_connectives(text: str, name: str, fits: bool) -> None:
    assert matcher(text)(name) is fits


@pytest.mark.parametrize("text", ["", "and", "a b", "a or", "(a", "a)", "not"])
def test_invalid_name_expression_is_refused(text: str) -> None:
    with pytest.raises(SelectionError, match="is unexpected; expected words"):
        matcher(text)


def test_a_selection_is_listed_or_run_and_an_empty_one_is_refused(folder: Path, capsys: Capture) -> None:
    assert cli.run(["run", "scn", "-k", "s1 or s2", "--list"]) == 0
    assert capsys.readouterr().out == "scn/s1.yaml\nscn/s2.yaml\n"
    assert not (folder / "campaigns").exists()
    assert cli.run(["run", "scn", "-k", "not s1", "--ray", "off", "-q"]) == 0
    assert capsys.readouterr().out == "\n2 scenarios: 2 agreed\nresults: campaigns/scn-0001\n"
    assert cli.run(["run", "scn", "-k", "other"]) == 2
    assert capsys.readouterr().err == "specstorm: -k is 'other': matches none of 3 names; --list shows them\n"


def test_run_stops_at_maximum_findings_and_prints_resume_command(folder: Path, capsys: Capture) -> None:
    run = ["run", "scn", "--ray", "off", "--fault", FOUND]
    for options, found in ((["-x"], 1), (["--maxfail", "2"], 2)):
        assert cli.run([*run, *options, "-q"]) == 1
        out = capsys.readouterr().out
        assert f"3 scenarios: {found} diverged, {3 - found} not run" in out
        assert f"stopped after {found} findings; continue with: " in out


def test_run_out_of_time_is_not_judged_and_resumes(folder: Path, capsys: Capture) -> None:
    run = ["run", "scn", "--ray", "off", "--out", "out", "-q"]
    assert cli.run([*run, "--time-limit", "0.001"]) == 3
    out = capsys.readouterr().out
    assert "the time limit of 0.001 s was reached; continue with: " in out
    assert "not run" in out
    assert cli.run(run) == 0


def test_verbosity_names_each_result_and_durations_the_slowest(folder: Path, capsys: Capture) -> None:
    assert cli.run(["run", "scn", "--ray", "off", "-v", "--durations", "2"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in err.splitlines()] == [["agreed", f"scn/s{n}.yaml"] for n in range(3)]
    slowest = [line for line in out.splitlines() if " s  scn/" in line]
    seconds = [float(line.split()[0]) for line in slowest]
    assert len(seconds) == 2
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 0


def test_every_file_is_validated_and_nothing_is_run(folder: Path, capsys: Capture) -> None:
    assert cli.run(["validate", "scn"]) == 0
    assert capsys.readouterr().out == "3 scenarios: 3 valid\n"
    (folder / "scn" / "bad.yaml").write_text("events: [{do: dance}]\n")
    (folder / "scn" / "fault.yaml").write_text("events: []\nfaults: [none-such]\n")
    assert cli.run(["validate", "scn"]) == 2
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("scn/bad.yaml:1: unknown event")
    assert second.startswith("scn/fault.yaml:2: unknown fault 'none-such'")
    assert last == "5 scenarios: 3 valid"
    assert cli.run(["validate", "scn", "--json"]) == 2
    told = document_of("validate", capsys.readouterr().out)
    assert [entry["problem"] is None for entry in told["files"]] == [False, False, True, True, True]
    assert not (folder / "campaigns").exists()


def test_probes_and_the_faults_of_a_plane_are_listed(capsys: Capture) -> None:
    assert cli.run(["probes", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PROBES)
    assert cli.run(["probes", "list", "--json"]) == 0
    assert [entry["id"] for entry in document_of("probes-list", capsys.readouterr().out)["probes"]] == list(PROBES)
    assert cli.run(["faults", "list", "--plane", "races", "--json"]) == 0
    told = [entry["id"] for entry in document_of("faults-list", capsys.readouterr().out)["faults"]]
    assert told == sorted(name for name, fault in FAULTS.items() if fault.plane == "races")
    assert cli.run(["faults", "list", "--plane", "none"]) == 2
    assert "allowed are blocks, books, " in capsys.readouterr().err


def test_help_and_completion_are_available(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.run(["run", "-h"]) == 0
    assert "--maxfail" in capsys.readouterr().out
    monkeypatch.setenv("_SPECSTORM_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "specstorm val")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert cli.run([]) == 0
    assert "validate" in capsys.readouterr().out


def test_a_document_of_every_listing_has_a_schema(capsys: Capture) -> None:
    for name in ("validate", "probes-list"):
        assert cli.run(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out)["type"] == "object"
