"""Warm-up: compile the Triton kernels of our own engine before its first run.

The program that this starts uses as many processes as there are cores; an engine would compile its kernels one at a
time, each at its first launch. The first process compiles the kernels of this source version, once; other processes
wait for it. A kernel that the warm-up does not cover is compiled at its first launch.
"""

import os
import subprocess
import sys
from functools import cache
from hashlib import blake2b
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from workers.targets.devices import functions_on
from workers.targets.target import RunConfig

PROGRAM = "workers.run.rehearsal"
KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def marker() -> Path:
    """Return the file in Triton's cache that marks these kernels as compiled.

    It covers one kind of GPU: on another kind with the same cache, kernels are compiled at their first launch.
    """
    digest = blake2b(version("triton").encode(), digest_size=16)
    for file in sorted(KERNELS.rglob("*.py")):
        digest.update(file.relative_to(KERNELS).as_posix().encode() + b"\x00" + file.read_bytes() + b"\x00")
    cache_folder = Path(import_module("triton.knobs").cache.dir)
    cache_folder.mkdir(parents=True, exist_ok=True)
    return cache_folder / f"specstorm-{digest.hexdigest()}"


def is_compiled(file: Path) -> bool:
    """Return whether a marker file is not empty: the kernels are compiled."""
    return file.is_file() and file.stat().st_size > 0


@cache
def warm_up(config: RunConfig) -> None:
    """Compile our engine's GPU kernels for a device, at most once per process.

    Raises:
        DeviceError: this process cannot use the device.
    """
    # The program compiles while this process imports Torch and Triton itself.
    program = _started()
    try:
        functions_on(config)
    finally:
        if program is not None:
            # A compilation error occurs again at the launch of that kernel, and is reported there.
            program.wait()


def _started() -> subprocess.Popen[bytes] | None:
    """Start a process that compiles the kernels; return None if there is nothing to compile.

    There is none if it has run already, or if Triton is missing or interprets kernels.
    """
    if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1" or is_compiled(marker()):
        return None
    # The program imports our packages from the same folders as this process.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", PROGRAM], env=environment)
