"""Findings of SGLang as tests that need only SGLang and pytest: the example, and what is refused."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cluster.cli import main as cli
from tests.workers.targets.exported_text import problems_of
from workers.targets.sglang.installation import ROOT

EXAMPLES = ROOT / "docs" / "exported"
NAME = "sglang_penalties_forgotten"


def exported(name: str, out: Path, evidence: Path) -> int:
    return cli.run(["export", f"findings/{name}/trace.yaml", "--evidence", str(evidence), "--out", str(out)])


def test_export_with_evidence_of_an_example_writes_the_same_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert exported(NAME, tmp_path, EXAMPLES / f"{NAME}.json") == 0
    for written in (f"test_{NAME}.py", f"{NAME}.json"):
        assert (tmp_path / written).read_text(encoding="utf-8") == (EXAMPLES / written).read_text(encoding="utf-8")


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


def test_exported_example_has_short_lines_and_no_import_of_this_project() -> None:
    assert problems_of((EXAMPLES / f"test_{NAME}.py").read_text(encoding="utf-8")) == []


def refused(changes: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str = NAME) -> str:
    """Return why a finding with some values of its difference changed is refused."""
    found = json.loads((EXAMPLES / f"{NAME}.json").read_text(encoding="utf-8"))
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
