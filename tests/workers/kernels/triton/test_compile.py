"""Kernels are typed as the compiler wants them, whether or not there is a GPU to launch them on."""

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
