"""Requests that the Makefile's recipes make to pip, recorded by a replacement for Python."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TORCH = next(line for line in (ROOT / "constraints-vllm.txt").read_text().splitlines() if line.startswith("torch=="))
PYTHON = """#!/bin/sh
echo "$*" >> asked
case "$*" in *"{refused}"*) exit 1;; esac
"""


def asked(folder: Path, refused: str, *words: str) -> tuple[int, list[str]]:
    """Return exit code and pip requests of making .venv-vllm; `refused` requests fail."""
    python = folder / ".venv-vllm" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON.format(refused=refused))
    python.chmod(0o755)
    shutil.copy(ROOT / "constraints-vllm.txt", folder)
    done = subprocess.run(
        ["make", "--file", str(ROOT / "Makefile"), ".venv-vllm/installed", *words],
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return done.returncode, (folder / "asked").read_text().splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_extra_index_is_used_for_torch_only_if_pip_finds_none(tmp_path: Path) -> None:
    found, missing, nowhere = tmp_path / "found", tmp_path / "missing", tmp_path / "nowhere"
    plain, all_else = f"-m pip install --quiet --no-deps {TORCH}", "--requirement constraints-vllm.txt"
    code, requests = asked(found, "nothing is refused")
    assert code == 0
    assert requests == [plain, plain.replace(TORCH, all_else)]
    code, requests = asked(missing, f"--no-deps {TORCH}", "VLLM_INDEX=https://index")
    assert code == 0
    from_index = plain.replace(TORCH, f"--extra-index-url https://index {TORCH}")
    assert requests == [plain, from_index, plain.replace(TORCH, all_else)]
    assert asked(nowhere, TORCH)[0] == 2
