"""Programs that use the device in their own processes, each run once for all tests."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from workers.simulated_torch.build import unbuildable

ROOT = Path(__file__).parents[3]


def run_module(module: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a module in its own process, because a wrong schedule may corrupt memory."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@cache
def printed(module: str, hash_seed: str) -> str:
    """Run a module of this folder in its own process; return its output."""
    done = run_module(f"tests.workers.simulated_torch.{module}", PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_device = pytest.mark.skipif(unbuildable() is not None, reason=str(unbuildable()))
