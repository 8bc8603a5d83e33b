"""Exported tests of SGLang, run: each fails on the installed release.

`python -m benchmarks.conformance.sglang_exports` runs them in the installation of `make sglang`, with the pytest plugin
for the modules that it lacks (`workers/targets/sglang/inside/absent.py`). A complete installation of SGLang needs no
plugin.

Exit code 1 if one does not fail by its own assertion.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workers.targets.child.installation import python_of
from workers.targets.sglang.installation import HOME, ROOT, making

EXPORTED = ROOT / "docs" / "findings" / "exported" / "sglang"
SECONDS_MAX = 600
# Exit code of pytest where tests failed.
_FAILED = 1
_PLUGIN = "workers.targets.sglang.inside.absent"


def exported_files() -> list[Path]:
    """Return the exported tests."""
    return sorted(EXPORTED.glob("test_*.py"))


def is_shown(file: Path, home: Path) -> bool:
    """Tell whether a test fails by its assertion, in a folder of its own.

    Raises:
        FileNotFoundError: SGLang is not installed there.
    """
    python = python_of(home)
    if python is None:
        raise FileNotFoundError(f"SGLang is not installed in {home}; {making()}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "pytest", "--quiet", "-p", _PLUGIN, "--rootdir", "."]
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(file, folder)
        done = subprocess.run(
            [*command, file.name],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS_MAX,
        )
    return done.returncode == _FAILED and "AssertionError" in done.stdout


def main() -> int:
    """Run every exported test; return the exit code."""
    shown = {file.name: is_shown(file, ROOT / HOME) for file in exported_files()}
    for name, is_failing in shown.items():
        print(f"{name}  {'fails on the release' if is_failing else 'DOES NOT FAIL BY ITS ASSERTION'}")
    return 0 if all(shown.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
