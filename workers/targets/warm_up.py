"""Warm-up of our engine on a GPU: kernels are compiled before its first run, in as many processes as there are cores.

An engine would wait for one kernel after the other. This is done once for the kernels as they are, by the first
process; others wait. What is not compiled here is where it is launched.
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

from workers.targets.devices import parts_on
from workers.targets.target import RunConfig

PROGRAM = "workers.run.rehearsal"
KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def marker() -> Path:
    """Return a file in Triton's cache that is not empty once the kernels, as they are, have been compiled.

    For one kind of GPU: on another one, with the same cache, they are compiled where they are launched.
    """
    digest = blake2b(version("triton").encode(), digest_size=16)
    for file in sorted(KERNELS.rglob("*.py")):
        digest.update(file.relative_to(KERNELS).as_posix().encode() + b"\x00" + file.read_bytes() + b"\x00")
    cache_folder = Path(import_module("triton.knobs").cache.dir)
    cache_folder.mkdir(parents=True, exist_ok=True)
    return cache_folder / f"specstorm-{digest.hexdigest()}"


def is_compiled(file: Path) -> bool:
    """Tell whether a marker says that kernels have been compiled."""
    return file.is_file() and file.stat().st_size > 0


@cache
def warm_up(config: RunConfig) -> None:
    """Compile the kernels of our engine on a GPU; in this process that is asked once.

    Raises:
        DeviceError: this process cannot run on the device.
    """
    # It begins while this process loads what it needs itself.
    program = _started()
    try:
        parts_on(config)
    finally:
        if program is not None:
            # An error there occurs again where a kernel is launched, and is reported there.
            program.wait()


def _started() -> subprocess.Popen[bytes] | None:
    """Start the program that compiles, unless that is done, or Triton is missing or loaded to interpret."""
    if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") == "1" or is_compiled(marker()):
        return None
    # It finds our packages where this process does.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", PROGRAM], env=environment)
