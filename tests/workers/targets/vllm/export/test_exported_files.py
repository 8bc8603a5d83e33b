"""Exported files: what `export` writes of each finding today, readable, and with nothing of this project."""

import ast
import sys
from pathlib import Path

import pytest

from benchmarks.conformance.vllm_exports import EXPORTED, exported_names, lay_out
from cluster.cli import main as cli
from workers.targets.vllm.export.text import WIDTH
from workers.targets.vllm.installation import ROOT

NAMES = exported_names()
OTHERS = {"torch", "pytest", "safetensors", "vllm"}


def tree_of(name: str) -> ast.Module:
    return ast.parse((EXPORTED / f"test_{name}.py").read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.name for each in names}
            case ast.ImportFrom(module=module):
                found.add(str(module))
    return {name.partition(".")[0] for name in found}


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_is_exported_as_it_lies_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    evidence = EXPORTED / f"{name}.json"
    file = f"findings/{name}/trace.yaml"
    assert cli.run(["export", file, "--engine", "vllm-v1", "--evidence", str(evidence), "--out", str(tmp_path)]) == 0
    for path in tmp_path.iterdir():
        assert path.read_text(encoding="utf-8") == (EXPORTED / path.name).read_text(encoding="utf-8"), path.name
    assert {path.name for path in tmp_path.iterdir()} == {
        f"test_{name}.py",
        f"{name}.md",
        f"{name}.json",
        f"{name}.patch",
    }


def test_there_are_exported_tests_and_each_has_its_issue_its_evidence_and_a_patch() -> None:
    assert len(NAMES) > 7
    issues = {path.stem for path in EXPORTED.glob("*.md")} - {"README"}
    assert set(NAMES) == issues == {path.stem for path in EXPORTED.glob("*.json")}
    assert [name for name in NAMES if not (EXPORTED / f"{name}.patch").is_file()] == []


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_test_imports_nothing_of_this_project_and_has_nothing_that_it_does_not_use(name: str) -> None:
    tree = tree_of(name)
    assert imported(tree) - {*sys.stdlib_module_names} <= OTHERS
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    tests = {each for each in defined if each.startswith("test_")}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    bound = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert len(tests) == 1
    assert (defined - tests | bound) - used == set()


@pytest.mark.parametrize("name", NAMES)
def test_lines_of_an_exported_test_are_no_longer_than_those_of_vllm(name: str) -> None:
    lines = (EXPORTED / f"test_{name}.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > WIDTH] == []


def test_what_a_patch_changes_is_a_copy_in_a_tree_of_links(tmp_path: Path) -> None:
    package, made = tmp_path / "site" / "vllm", tmp_path / "made"
    (package / "core" / "sched").mkdir(parents=True)
    made.mkdir()
    for file, text in {"__init__.py": "", "core/sched/a.py": "x = 1\n", "core/sched/b.py": "y = 1\n"}.items():
        (package / file).write_text(text)
    file = "vllm/core/sched/a.py"
    lay_out(package, f"--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-x = 1\n+x = 2\n", made)
    assert (made / file).read_text() == "x = 2\n"
    assert (package / "core" / "sched" / "a.py").read_text() == "x = 1\n"
    links = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_symlink()}
    assert links == {"vllm/__init__.py", "vllm/core/sched/b.py"}
