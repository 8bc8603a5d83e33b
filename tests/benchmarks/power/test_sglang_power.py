"""Reversals and collected bugs of SGLang: the tables agree with sources and page."""

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


def test_table_is_valid_and_large_enough() -> None:
    reversals = all_reversals()
    assert len(reversals) >= 20
    assert {task.engine for task in tasks_of(SUITE, reversals, options_of(SUITE, []))} == {SGLANG}


def test_collected_bugs_need_described_features() -> None:
    every, means = bugs.bugs(TABLES), bugs.means(TABLES)
    assert len(every) == len({bug.number for bug in every}) == 51
    assert {each for bug in every for each in bug.means} == set(means) == set(bugs.descriptions(TABLES))


@pytest.mark.parametrize("bug", bugs.bugs(TABLES), ids=lambda bug: str(bug.number))
def test_evidence_of_expressible_bug_exists(bug: Bug) -> None:
    bugs.check(bug, TABLES, (SGLANG,))


def test_expressible_bugs_have_reversals() -> None:
    expressed = {bug.number for bug in bugs.bugs(TABLES) if not bugs.missing_features(bug, TABLES)}
    assert expressed
    assert expressed <= {each.number for each in all_reversals()}


def test_page_equals_table_and_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    sections = page.parts(Results(page.MEASURED).by_key)
    assert "`sglang-25015-positions-late`" in sections["reversals"]
    assert all(f"| #{bug.number} |" in sections["bugs"] for bug in bugs.bugs(TABLES))
    assert written(text, sections) == text
