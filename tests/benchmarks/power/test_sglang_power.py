"""Reversals of SGLang, and its collected bugs: tables that say what there is."""

import pytest

from benchmarks.power.reversals.command import options_of, tasks_of
from benchmarks.power.reversals.runs import Results
from benchmarks.power.sglang_power import page
from benchmarks.power.sglang_power.__main__ import SUITE
from benchmarks.power.sglang_power.reversals import FOLDER, all_reversals
from benchmarks.power.vllm_power import bugs
from benchmarks.power.vllm_power.bugs import Bug
from benchmarks.power.vllm_power.page import written
from workers.targets.sglang.installation import SGLANG

TABLES = FOLDER.parent


def test_the_table_is_well_formed_and_large_enough() -> None:
    reversals = all_reversals()
    assert len(reversals) >= 20
    assert {task.engine for task in tasks_of(SUITE, reversals, options_of(SUITE, []))} == {SGLANG}


def test_every_collected_bug_needs_means_that_are_told() -> None:
    every, means = bugs.bugs(TABLES), bugs.means(TABLES)
    assert len(every) == len({bug.number for bug in every}) == 51
    assert {each for bug in every for each in bug.means} == set(means) == set(bugs.descriptions(TABLES))


@pytest.mark.parametrize("bug", bugs.bugs(TABLES), ids=lambda bug: str(bug.number))
def test_what_expresses_a_bug_is_there(bug: Bug) -> None:
    bugs.check(bug, TABLES, (SGLANG,))


def test_what_can_be_expressed_is_reversed() -> None:
    expressed = {bug.number for bug in bugs.bugs(TABLES) if not bugs.missing(bug, TABLES)}
    assert expressed
    assert expressed <= {each.number for each in all_reversals()}


def test_the_page_says_what_the_table_and_the_results_say() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    told = page.parts(Results(page.MEASURED).by_key)
    assert "`sglang-25015-positions-late`" in told["reversals"]
    assert all(f"| #{bug.number} |" in told["bugs"] for bug in bugs.bugs(TABLES))
    assert written(text, told) == text
