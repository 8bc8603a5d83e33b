import shutil
from pathlib import Path

import pytest

from benchmarks.power.recall import page, trials
from benchmarks.power.recall.__main__ import main
from benchmarks.power.recall.census import FOLDER, RELEASES, CensusError, Fix, fixes, mechanisms, outcome
from benchmarks.power.reversals.command import options_of, tasks_of
from benchmarks.power.reversals.trial import Found, Result
from benchmarks.power.vllm_power.page import written
from workers.targets.vllm.names import VLLM

FOUND = Found(bug="inputs block_table", plane="inputs", sites=(), nearness="nowhere", trace="trace 0.1")


def fix(status: str, reversal: str = "") -> Fix:
    return Fix(1, "", "a.py", "scheduler", "w", status, "", reversal, "", "a judge")  # type: ignore[arg-type]


def result(found: Found | None) -> Result:
    return Result(key="k", id="recall-1-a", engine=VLLM, source="drawn", traces=7, seconds=30.0, found=found)


def test_page_equals_census_and_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert written(text, page.parts()) == text
    assert main(["--check"]) == 0


def test_census_is_valid_and_each_mechanism_is_missing_somewhere() -> None:
    census = {engine: fixes(engine) for engine in RELEASES}
    assert len(census["vllm"]) >= 80
    assert len(census["sglang"]) >= 30
    assert {each.missing for rows in census.values() for each in rows} - {""} == set(mechanisms())
    descriptions = [each.what for rows in census.values() for each in rows]
    assert len(set(descriptions)) == len(descriptions)
    assert all(not text.endswith(".") for text in descriptions)


def test_expressible_fix_without_finding_names_judge_or_is_shown() -> None:
    undone = {each.id for each in trials.all_reversals()}
    assert undone == {each.reversal for each in fixes("vllm") if each.status == "expressible"}
    assert all(each.judge for each in fixes("vllm") if each.status == "expressible")


def test_outcome_follows_from_status_and_trial() -> None:
    assert outcome(fix("found before"), {}) == "found before"
    assert outcome(fix("not expressible"), {}) == "not expressible"
    assert outcome(fix("expressible", "recall-1-a"), {}) == "not tried"
    assert outcome(fix("expressible", "recall-1-a"), {"recall-1-a": result(FOUND)}) == "shown"
    assert outcome(fix("expressible", "recall-1-a"), {"recall-1-a": result(None)}) == "missed"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("1,,a.py,scheduler,w,lost,,,,", "'lost'; expected found before, expressible, not expressible"),
        ("2,,a.py,scheduler,w,expressible,,,,j", "its number is '2'"),
        ("1,x,a.py,scheduler,w,expressible,,,,j", "'x' is not a number"),
        ("1,,a.py,scheduler,w,expressible,,,tiers,j", "missing must be set if and only if expressible"),
        ("1,,a.py,scheduler,w,not expressible,,,magic,", "'magic' is not in mechanisms.csv"),
        ("1,,a.py,scheduler,w,expressible,,recall-9-freed-blocks-in-tables,,j", "reversal of another row"),
        ("1,,a.py,scheduler,w,expressible,,recall-1-nothing,,j", "no reversal recall-1-nothing"),
        ("1,,a.py,scheduler,w,found before,vllm_paused_counts,,,", "vllm_paused_counts is not fixed in 0.33.0"),
    ],
)
def test_invalid_row_is_refused(row: str, why: str, tmp_path: Path) -> None:
    shutil.copy(FOLDER / "mechanisms.csv", tmp_path)
    header = "row,number,file,class,what,status,finding,reversal,missing,judge"
    (tmp_path / "vllm.csv").write_text(f"{header}\n{row}\n")
    with pytest.raises(CensusError, match=why):
        fixes("vllm", tmp_path)


def test_trials_edit_the_given_sources() -> None:
    options = options_of(trials.SUITE, ["--engine-path", "out/vllm-release", "--minutes", "2"])
    (task, *_) = tasks_of(trials.SUITE, trials.all_reversals(), options)
    assert (task.sources, task.engine, task.minutes) == ("out/vllm-release", VLLM, 2)
