from benchmarks.power.reversals.runs import Results
from benchmarks.power.reversals.trial import Found, Result, Task
from benchmarks.power.vllm_power import page
from benchmarks.power.vllm_power.reversals import all_reversals
from workers.targets.vllm.names import VLLM_V1


def result_of(reversal: int, found: Found | None) -> Result:
    task = Task(all_reversals()[reversal].id, (), VLLM_V1)
    return Result(key=task.key, id=task.id, engine=task.engine, source=task.source, traces=3, seconds=21.4, found=found)


def test_page_equals_table_and_results() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text, page.parts(all_reversals(), Results(page.MEASURED).by_key)) == text


def test_table_and_figures_show_findings_and_traces() -> None:
    found = Found(bug="inputs input_ids", plane="inputs", sites=("f (a.py)",), nearness="file", trace="trace 0.2")
    results = {"first": result_of(0, found), "second": result_of(1, None)}
    written = page.parts(all_reversals(), results)
    assert "1 of 2 found; median 3 traces and 21 s of CPU" in written["figures"]
    assert "its file in 1" in written["figures"]
    assert "3 (21 s), inputs" in written["reversals"]
    assert "missed in 3" in written["reversals"]
    assert f"`{all_reversals()[1].id}` ({VLLM_V1})" in written["missed"]


def test_only_marked_sections_of_a_page_are_rewritten() -> None:
    before = "Kept.\n<!-- figures -->\nold\n<!-- /figures -->\nKept too.\n"
    assert page.written(before, {"figures": "new"}) == before.replace("old", "new")
