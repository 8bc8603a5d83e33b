"""Exported tests of SGLang, run: each fails on the installed release.

`python -m benchmarks.conformance.sglang_exports` runs them in the installation of `make sglang`, which lacks modules
that SGLang imports and that no test calls: this module is a plugin of pytest's that stands for them. Where SGLang was
installed with all that it needs the tests run without.

Exit code 1 if one does not fail by its own assertion.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from workers.targets.child.installation import python_of
from workers.targets.sglang.installation import HOME, ROOT, making

EXPORTED = ROOT / "docs" / "findings" / "exported" / "sglang"
SECONDS_MAX = 600
# Exit code of pytest where tests failed.
_FAILED = 1
# This module, as a plugin.
_NAME = "benchmarks.conformance.sglang_exports"


def pytest_configure(config: Any) -> None:
    """Have modules found that are not installed."""
    from workers.targets.sglang.inside import absent  # noqa: PLC0415

    absent.install()


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
    command = [str(python), "-m", "pytest", "--quiet", "-p", _NAME, "--rootdir", "."]
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
