"""Exported tests on vLLM itself, in a process without this project."""

from pathlib import Path

import pytest

from benchmarks.conformance.exports import VLLM_TESTS, run_test, tried
from cluster.cli import main as cli
from tests.workers.targets.vllm.export.test_exported_files import EXAMPLES, NAMES
from workers.targets.vllm.installation import ROOT

# Packages that the process of a test cannot import.
_OURS = """from importlib.util import find_spec


def test_alone():
    assert [name for name in ("cluster", "scenarios", "workers") if find_spec(name)] == []
"""


def test_process_of_an_exported_test_cannot_import_this_project(tmp_path: Path) -> None:
    file = tmp_path / "test_alone.py"
    file.write_text(_OURS)
    assert run_test(file, VLLM_TESTS).outcome == "passes"


def test_run_that_raises_another_error_breaks_off(tmp_path: Path) -> None:
    file = tmp_path / "test_error.py"
    file.write_text("def test_error():\n    raise ValueError\n")
    assert run_test(file, VLLM_TESTS).outcome == "breaks off"
    assert run_test(file, VLLM_TESTS, error="ValueError").outcome == "fails"


@pytest.mark.parametrize("name", NAMES)
def test_export_of_an_example_writes_the_same_issue_and_patch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    file, evidence = f"findings/{name}/trace.yaml", str(EXAMPLES / f"{name}.json")
    assert cli.run(["export", file, "--engine", "vllm-v1", "--evidence", evidence, "--out", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in EXAMPLES.glob(f"*{name}.*")}
    for written in (f"{name}.md", f"{name}.patch"):
        assert (tmp_path / written).read_text(encoding="utf-8") == (EXAMPLES / written).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["vllm_failed_load_reserved", "vllm_min_tokens_asynchronous"])
def test_exported_test_fails_on_the_release_and_passes_with_the_fix(name: str) -> None:
    found = tried(name)
    assert found.line == "fails on the release, passes with the fix", found.output
