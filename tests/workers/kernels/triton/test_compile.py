"""Kernels have the types that the compiler needs, whether or not a GPU is installed."""

import os
import subprocess
import sys


def test_every_kernel_compiles_for_a_gpu() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.kernels.triton.compile_offline"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
