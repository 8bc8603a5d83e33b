"""Mutants run in forks, their results, and the table of classified survivors."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path

import pytest

from benchmarks.power.mutant_runs import Outcome, change_module, in_fork
from benchmarks.power.mutants import Mutant
from benchmarks.power.mutation import (
    Result,
    Results,
    UsageError,
    all_mutants,
    clean_runs,
    default_files,
    files_in,
    interval,
    main,
    meeting,
    out_of_date,
    report,
    run_mutants,
    sampled,
)
from benchmarks.power.survivors import Classified, classified

RULES = "workers/engine/rules.py"
FORWARD = "workers/engine/forward.py"
ARITHMETIC = "workers/kernels/arithmetic/numpy.py"


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return all_mutants(default_files())


@pytest.fixture(scope="module")
def alone() -> Iterator[Pool]:
    """Pool of one process without threads that has not loaded the engine, so it may fork."""
    with get_context("spawn").Pool(1) as pool:
        yield pool


def of_rules(mutants: list[Mutant], line: str, change: str) -> Mutant:
    return next(each for each in mutants if (each.file, each.line, each.change) == (RULES, line, change))


def load_changed(change: str) -> tuple[object, object, bool]:
    """Return a changed constant inside and outside a fork, and whether the fork left no trace."""
    before = list(sys.meta_path)

    def changed() -> object:
        change_module("workers/kernels/sentinels.py", ast.parse(change))
        from workers.kernels import sentinels  # noqa: PLC0415

        return sentinels.NO_DRAFT

    inside = in_fork(changed).value
    is_clean = sys.meta_path == before and "workers.kernels.sentinels" not in sys.modules
    from workers.kernels import sentinels  # noqa: PLC0415

    return inside, sentinels.NO_DRAFT, is_clean


def how_it_ends(program: str) -> tuple[object, int]:
    ended = in_fork(lambda: eval(program), cpu_seconds=1)
    return ended.value, ended.signal


def change_of_what_is_loaded() -> str:
    try:
        change_module("workers/lanes/lane.py", ast.parse(""))
    except RuntimeError as error:
        return str(error)
    return ""


def test_mutated_module_is_visible_in_its_fork_only(alone: Pool) -> None:
    assert alone.apply(load_changed, ("NO_DRAFT = 77",)) == (77, -1, True)
    assert "already loaded with the judges" in alone.apply(change_of_what_is_loaded)


def test_fork_returns_or_ends_at_time_or_memory_limit(alone: Pool) -> None:
    assert alone.apply(how_it_ends, ("6 * 7",)) == (42, 0)
    assert alone.apply(how_it_ends, ("sum(iter(int, 1))",)) == (None, 27)
    assert alone.apply(how_it_ends, ("bytes(1 << 40)",)) == (None, 9)


def test_run_mutants_finds_planted_change_and_resumes(mutants: list[Mutant], tmp_path: Path) -> None:
    line = "return 0 if row.discard else k_step"
    wrong = of_rules(mutants, line, "row.discard → not row.discard")
    # A length is never negative.
    same = of_rules(mutants, "return len(rows) > 0", "len(rows) > 0 → len(rows) >= 0")
    clean = clean_runs([RULES, ARITHMETIC], 3, 1)
    assert [each.verdict for each in clean] == ["agreed"] * 3
    # A table that is computed once is computed by its first reader.
    table = next(each for each in all_mutants([ARITHMETIC]) if each.line.startswith("odd = "))
    assert meeting(table, clean) == (0, 1, 2)
    # A line that no trace executes may run when another module is loaded.
    assert meeting(replace(table, lines=range(0)), clean) == (0, 1, 2)
    file = tmp_path / "results.jsonl"
    outcomes = [each.outcome for each in run_mutants([wrong, same], clean, 1, Results(file, "a"))]
    assert [(each.how, each.trace, each.changed) for each in outcomes] == [
        ("diverged", 0, ""),
        ("survived", -1, "nothing"),
    ]
    with file.open("a") as torn:
        torn.write('{"build": "a", "outc')
    again = Results(file, "a")
    assert {key: each.outcome for key, each in again.by_key.items()} == {each.key: each for each in outcomes}
    assert list(run_mutants([wrong, same], clean, 1, again)) == []
    assert Results(file, "b").by_key == {}
    assert Results(file, "b").num_of_other_builds == 2


def test_classified_survivors_are_current_mutants(mutants: list[Mutant]) -> None:
    known = classified()
    assert out_of_date(known, mutants, {}) == []
    assert len(known) > 60
    assert "blind" not in {row.kind for row in known.values()}


def test_class_of_missing_or_found_mutant_is_refused(mutants: list[Mutant]) -> None:
    first, second = mutants[:2]
    known = {"workers/a.py | b | 1 → 2": Classified("equivalent", "none", 7)}
    assert out_of_date(known, mutants, {}) == [
        "survivors.csv: line 7: the mutant no longer exists: workers/a.py | b | 1 → 2"
    ]
    results = {each.key: Result(Outcome(each.key, "stuck", 4, "why"), 5, 5) for each in (first, second)}
    known = {first.key: Classified("equivalent", "none", 7), second.key: Classified("rare", "needs luck", 8)}
    assert out_of_date(known, mutants, results) == [
        f"survivors.csv: line 7: equivalent, but trace 4 ends stuck (why): {first.key}"
    ]


def test_score_excludes_harmless_and_names_unclassified_mutants(
    mutants: list[Mutant], capsys: pytest.CaptureFixture[str]
) -> None:
    some = mutants[:10]
    hows = ["diverged"] * 6 + ["survived"] * 4
    results = {
        each.key: Result(Outcome(each.key, how, changed="probes"), 9, 9) for each, how in zip(some, hows, strict=True)
    }
    kinds = ("equivalent", "rare", "blind")
    known = {each.key: Classified(kind, "why", 1) for each, kind in zip(some[6:], kinds, strict=False)}
    assert report(some, results, known) == 2
    said = capsys.readouterr().out
    assert "10 mutants: 6 found (6 diverged)" in said
    assert "score 60.0% [31.3%, 83.2%]; without harmless ones 66.7% [35.4%, 87.9%]" in said
    assert f"BLIND: {some[8].key}" in said
    assert f"NOT CLASSIFIED: {some[9].key}" in said
    assert interval(0, 0) == "-"


def test_larger_sample_extends_smaller_sample(mutants: list[Mutant]) -> None:
    few, more = sampled(mutants, 10, 3), sampled(mutants, 30, 3)
    assert more[:10] == few
    assert few != sampled(mutants, 10, 4)
    rest = [each for each in mutants if each.file != few[0].file]
    assert sampled(rest, 5, 3) == [each for each in more if each.file != few[0].file][:5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paths", "scenarios"], "scenarios: no file of the engine"),
        (["--paths", RULES, "--match", "no such text"], "no mutant matches 'no such text'; --list prints all keys"),
    ],
)
def test_invalid_options_exit_with_a_message(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_results_file_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("Dear diary\n")
    with pytest.raises(UsageError, match="notes: line 1: not a result of this benchmark"):
        Results(tmp_path / "notes", "a")


def test_list_prints_mutants_of_the_given_paths(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--paths", RULES, "--sample", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith(f"{RULES} | ") for line in lines)
    assert RULES in files_in(["workers/engine"])
    assert FORWARD in default_files()
    assert not {"workers/engine/observer.py", "workers/lanes/base.py"} & {*default_files()}
