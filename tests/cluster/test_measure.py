"""A measurement counts what happened, and its table and pictures say so."""

from itertools import count
from pathlib import Path

import pytest

from cluster.figures import draw_kill_matrix, draw_survival
from cluster.measure import Trial, line_of, run_trial, table
from workers.faults.registry import FAULTS
from workers.tape import Tapes

TAPES = Tapes()
BACKUP, COUNTS = "vllm-38556-backup-token", "vllm-38556-accepted-counts"


def trial(fault: str, number: int, traces_max: int) -> Trial:
    ticks = count()
    return run_trial(fault, number, traces_max, TAPES, lambda: float(next(ticks)))


def test_a_trial_ends_when_the_fault_is_found_but_the_baselines_go_on() -> None:
    found = trial(BACKUP, 0, 4)
    assert found.detected.at == found.judged <= 4
    assert (found.plane, found.variable) == ("inputs", "backup")
    assert found.seconds == found.judged
    assert found.reached >= found.triggered >= 1
    assert found.against_synchronous.at is None
    assert found.against_correct.at is None


def test_traces_that_do_not_meet_the_requirements_count_as_judged_but_not_as_reached() -> None:
    seen = trial(COUNTS, 1, 6)
    assert seen.judged > seen.reached
    assert dict(FAULTS[COUNTS].requires)["accepted_counts"] == "host"


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
    shown = table([line, line_of([found, found])])
    assert " 0/ 2" in shown[1]
    assert " 2/ 2" in shown[2]
    assert "found in every trial: 1 of 2 faults; in the expected plane: 2 of 2" in shown


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_pictures_name_every_fault_and_way_of_checking(tmp_path: Path, ending: str) -> None:
    trials = [trial(fault, number, 3) for fault in (BACKUP, COUNTS) for number in range(2)]
    lines = [line_of([each for each in trials if each.fault == fault]) for fault in (BACKUP, COUNTS)]
    survival, matrix = tmp_path / f"survival.{ending}", tmp_path / f"matrix.{ending}"
    draw_survival(trials, survival)
    draw_kill_matrix(lines, matrix)
    assert survival.stat().st_size > 5_000
    assert matrix.stat().st_size > 5_000
    if ending == "svg":
        assert BACKUP in matrix.read_text()
        assert "every check" in survival.read_text()
