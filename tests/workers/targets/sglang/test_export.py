"""Findings of SGLang as tests that need it and pytest alone: as they lie there, and what is refused."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conformance.sglang_exports import EXPORTED, exported_files
from cluster.cli import main as cli
from workers.targets.sglang.installation import ROOT
from workers.targets.vllm.export.text import WIDTH

NAMES = [file.stem.removeprefix("test_") for file in exported_files()]
OTHERS = {"torch", "safetensors", "sglang"}


def exported(name: str, out: Path, evidence: Path) -> int:
    return cli.run(["export", f"findings/{name}/trace.yaml", "--evidence", str(evidence), "--out", str(out)])


@pytest.mark.parametrize("name", NAMES)
def test_a_finding_is_exported_as_it_lies_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert exported(name, tmp_path, EXPORTED / f"{name}.json") == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"test_{name}.py", f"{name}.md", f"{name}.json"}
    for path in tmp_path.iterdir():
        assert path.read_text(encoding="utf-8") == (EXPORTED / path.name).read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize(("plugin", "code"), [((), 2), (("-p", "workers.targets.sglang.inside.absent"), 0)])
def test_a_plugin_stands_in_for_the_modules_that_are_not_installed(
    plugin: tuple[str, ...], code: int, tmp_path: Path
) -> None:
    # The plugin asks the library for models first whether torchvision is there.
    library = tmp_path / "transformers" / "utils"
    library.mkdir(parents=True)
    (library / "import_utils.py").write_text("def is_torchvision_available() -> bool:\n    return False\n")
    text = "from sgl_kernel.speculative import tree\nfrom torchvision.io import decode\n\ndef test_a(): assert tree\n"
    (tmp_path / "test_a.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", *plugin, "test_a.py"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout


def test_both_findings_of_outputs_without_drafts_are_there() -> None:
    assert NAMES == ["sglang_penalties_forgotten", "sglang_penalties_one_behind"]


@pytest.mark.parametrize("name", NAMES)
def test_an_exported_test_imports_nothing_of_this_project_and_its_lines_are_short(name: str) -> None:
    text = (EXPORTED / f"test_{name}.py").read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= WIDTH
    imported = {
        module.partition(".")[0]
        for node in ast.walk(ast.parse(text))
        for module in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - {*sys.stdlib_module_names} <= OTHERS


def refused(
    changes: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str = "sglang_penalties_forgotten",
) -> str:
    """Return why a finding with some values of its difference changed is refused."""
    found = json.loads((EXPORTED / "sglang_penalties_forgotten.json").read_text(encoding="utf-8"))
    found["verdict"]["difference"] |= changes
    evidence = tmp_path / "evidence.json"
    evidence.write_text(json.dumps(found), encoding="utf-8")
    assert exported(name, tmp_path, evidence) == 2
    return capsys.readouterr().err.partition("no test shows it: ")[2].strip()


def test_what_no_plain_cpu_shows_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert refused({"plane": "races"}, tmp_path, capsys).startswith("it is a race between host and device")
    assert refused({"variable": "kv"}, tmp_path, capsys).startswith("it is about kv, which is no output")
    assert refused({"request": ""}, tmp_path, capsys).startswith("it is about no request's output")
    assert refused({"plane": "contracts", "variable": "top_k"}, tmp_path, capsys).startswith("contract top_k: ")
    drafting = refused({}, tmp_path, capsys, "sglang_mixed_grammars")
    assert drafting == "it is of drafts, which SGLang overlaps and verifies by kernels that no CPU has"
