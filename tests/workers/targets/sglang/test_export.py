"""Exported tests of SGLang findings: the example in docs/exported, and refusals."""

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
def test_plugin_provides_modules_that_are_not_installed(plugin: tuple[str, ...], code: int, tmp_path: Path) -> None:
    # The plugin first asks transformers whether torchvision is installed.
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
    """Return the refusal of a finding with changed values in its difference."""
    found = json.loads((EXAMPLES / f"{NAME}.json").read_text(encoding="utf-8"))
    found["verdict"]["difference"] |= changes
    evidence = tmp_path / "evidence.json"
    evidence.write_text(json.dumps(found), encoding="utf-8")
    assert exported(name, tmp_path, evidence) == 2
    return capsys.readouterr().err.partition("no test shows it: ")[2].strip()


def test_finding_that_no_cpu_can_reproduce_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert refused({"plane": "races"}, tmp_path, capsys).startswith("it is a race between host and device")
    assert refused({"variable": "kv"}, tmp_path, capsys).startswith("it is about kv, which is not part of an output")
    assert refused({"request": ""}, tmp_path, capsys).startswith("it does not concern the output of a request")
    assert refused({"plane": "contracts", "variable": "top_k"}, tmp_path, capsys).startswith("contract top_k: ")
    drafting = refused({}, tmp_path, capsys, "sglang_mixed_grammars")
    assert drafting == "it needs draft tokens, which SGLang verifies by GPU kernels"
