"""Exported examples of vLLM: `export` reproduces them from their evidence."""

from pathlib import Path

import pytest

from cluster.cli import main as cli
from tests.workers.targets.exported_text import problems_of
from workers.targets.vllm.installation import ROOT

EXAMPLES = ROOT / "docs" / "exported"
NAMES = sorted(file.stem.removeprefix("test_") for file in EXAMPLES.glob("test_vllm_*.py"))


def test_examples_have_a_test_an_issue_an_evidence_and_a_patch() -> None:
    assert NAMES == ["vllm_failed_load_in_flight", "vllm_min_tokens_bonus"]
    for suffix in (".md", ".json", ".patch"):
        assert [file.stem for file in sorted(EXAMPLES.glob(f"vllm_*{suffix}"))] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_export_with_example_evidence_writes_the_same_test(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    file, evidence = f"findings/{name}/trace.yaml", str(EXAMPLES / f"{name}.json")
    assert cli.run(["export", file, "--engine", "vllm-v1", "--evidence", evidence, "--out", str(tmp_path)]) == 0
    for written in (f"test_{name}.py", f"{name}.json"):
        assert (tmp_path / written).read_text(encoding="utf-8") == (EXAMPLES / written).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_exported_example_has_short_lines_and_no_project_imports(name: str) -> None:
    assert problems_of((EXAMPLES / f"test_{name}.py").read_text(encoding="utf-8")) == []
