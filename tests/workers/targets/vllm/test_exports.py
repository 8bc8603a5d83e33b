"""Exported tests on vLLM itself, in a process that has nothing of this project."""

from pathlib import Path

import pytest

from benchmarks.conformance.vllm_exports import run_both_ways, run_test
from workers.targets.vllm.installation import HOME, ROOT

# What nobody can import there.
_OURS = """from importlib.util import find_spec


def test_alone():
    assert [name for name in ("cluster", "scenarios", "workers") if find_spec(name)] == []
"""


def test_nothing_of_this_project_can_be_imported_by_an_exported_test(tmp_path: Path) -> None:
    file = tmp_path / "test_alone.py"
    file.write_text(_OURS)
    assert run_test(file, ROOT / HOME).outcome == "passes"


@pytest.mark.parametrize("name", ["vllm_failed_load_reserved", "vllm_min_tokens_asynchronous"])
def test_an_exported_test_fails_on_the_release_and_passes_with_the_patch_of_its_finding(name: str) -> None:
    released, mended = run_both_ways(name, ROOT / HOME)
    assert released.outcome == "fails", released.output
    assert mended.outcome == "passes", mended.output
