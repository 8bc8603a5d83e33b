"""Measurement of faults: trials, table and pictures."""

import json
import subprocess
import sys
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from cluster.statistics.fault_table import line_of, table
from cluster.statistics.figures import draw_kill_matrix, draw_survival
from tests.cluster.documents import document_of
from workers.faults.registry import FAULTS
from workers.oracle.model_values import ModelValueCache
from workers.run.trials import Trial, run_trial

VALUE_CACHE = ModelValueCache()
BACKUP, COUNTS = "vllm-38556-backup-token", "vllm-38556-accepted-counts"


def trial(fault: str, number: int, traces_max: int) -> Trial:
    ticks = count()
    return run_trial(fault, number, traces_max, True, VALUE_CACHE, lambda: float(next(ticks)))


@cache
def trials_of_two_faults() -> list[Trial]:
    """Return trials of two faults, for tables and figures."""
    return [trial(fault, number, 3) for fault in (BACKUP, COUNTS) for number in range(2)]


def test_a_trial_ends_when_the_fault_is_found_but_the_baselines_go_on() -> None:
    found = trial(BACKUP, 0, 4)
    assert found.detected.at == found.judged <= 4
    assert (found.plane, found.variable) == ("inputs", "backup")
    assert found.seconds == found.judged
    assert found.reached >= found.triggered >= 1
    assert all(each.at is None or each.at > found.judged for each in (found.against_synchronous, found.against_correct))


def test_traces_are_fitted_to_what_a_fault_requires_so_that_each_of_them_reaches_it() -> None:
    seen = trial(COUNTS, 1, 4)
    assert dict(FAULTS[COUNTS].requires)["accepted_counts"] == "host"
    assert seen.reached == seen.judged >= seen.triggered >= 1
    assert seen.detected.at == seen.judged


def test_the_same_trial_gives_the_same_values() -> None:
    assert trial(BACKUP, 3, 3) == trial(BACKUP, 3, 3)


def test_a_fault_that_is_not_found_has_no_median_and_a_line_all_the_same() -> None:
    found = trial(BACKUP, 0, 3)
    given_up = found.model_copy(
        update={"detected": found.detected.model_copy(update={"at": None}), "plane": "", "variable": ""}
    )
    line = line_of([given_up, given_up])
    assert line.traces.at is None
    assert line.detected == 0
    assert line.planes == {}
    text = table([line, line_of([found, found])])
    assert " 0/ 2" in text[1]
    assert " 2/ 2" in text[2]
    assert "found in every trial: 1 of 2 faults; in the expected plane: 2 of 2" in text


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures_name_every_fault_and_way_of_checking(tmp_path: Path, ending: str) -> None:
    trials = trials_of_two_faults()
    lines = [line_of([each for each in trials if each.fault == fault]) for fault in (BACKUP, COUNTS)]
    survival, matrix = tmp_path / f"survival.{ending}", tmp_path / f"matrix.{ending}"
    draw_survival(trials, survival)
    draw_kill_matrix(lines, matrix)
    assert survival.stat().st_size > 5_000
    assert matrix.stat().st_size > 5_000
    if ending == "svg":
        assert BACKUP in matrix.read_text()
        assert "every check" in survival.read_text()


def specstorm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command as a subprocess."""
    command = [sys.executable, "-m", "cluster", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_the_command_measures_resumes_and_leaves_its_documents(tmp_path: Path) -> None:
    arguments = ["faults", "measure", BACKUP, "--trials", "2", "--traces", "5", "--ray", "off", "--pictures"]
    out = tmp_path / "out"
    first = specstorm(*arguments, "--out", str(out))
    assert first.returncode == 0, first.stderr
    assert "found in every trial: 1 of 1 faults; in the expected plane: 2 of 2" in first.stdout
    assert {"faults.txt", "faults.json", "survival.svg", "kill_matrix.svg"} <= {path.name for path in out.iterdir()}
    again = specstorm(*arguments, "--out", str(out), "--json")
    values = document_of("faults-measure", again.stdout)
    assert values == json.loads((out / "faults.json").read_text())
    assert [trial["number"] for trial in values["trials"]] == [0, 1]
    assert values["faults"][0]["fault"] == BACKUP
    # Seconds are measured once: what was kept is not measured again.
    assert (out / "faults.txt").read_text() in first.stdout


def test_an_unknown_fault_is_refused() -> None:
    refused = specstorm("faults", "measure", "nothing")
    assert refused.returncode == 2
    assert "nothing" in refused.stderr
