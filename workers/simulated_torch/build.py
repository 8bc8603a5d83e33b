"""Compiles the simulated device's C++ library, once per machine, and caches it.

Its file name is a digest of its sources, PyTorch and Python. Processes that need it at the same time wait for one of
them to build it.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from hashlib import blake2b
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

NAME = "specstorm_simulated_torch"
SOURCES = Path(__file__).parent / "native"
# -fno-gnu-unique: static variables of inline functions are not shared with other libraries.
_FLAGS = ("-O2", "-g0", "-fno-gnu-unique")


class BuildError(Exception):
    """The library cannot be compiled here; the message says why and what to do, in one line."""


def default_cache() -> Path:
    """Return the default folder for compiled libraries, below the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specstorm" / "simulated_torch"


def digest() -> str:
    """Return the digest of sources, flags and versions that the compiled library depends on."""
    import torch  # noqa: PLC0415  torch may be missing

    made_from = blake2b(digest_size=8)
    for path in sorted(SOURCES.iterdir()):
        made_from.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for version in (torch.__version__, sys.implementation.cache_tag, *_FLAGS):
        made_from.update(str(version).encode() + b"\0")
    return made_from.hexdigest()


def unbuildable() -> str | None:
    """Return in one line why the library cannot be compiled here, None if it can."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return f"the simulated device needs Linux on x86-64; this is {sys.platform} on {platform.machine()}"
    if find_spec("torch") is None:
        return "the simulated device needs PyTorch: pip install torch (or a build of it for CPUs)"
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return f"the simulated device is compiled once, and the C++ compiler {compiler!r} is missing: install g++"
    if shutil.which("ninja", path=_search_path()) is None:
        return "the simulated device is compiled once, and ninja is missing: pip install ninja"
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.is_file():
        return f"the simulated device is compiled once, and {header} is missing: install Python's headers (python3-dev)"
    return None


def library(cache: Path | None = None) -> Path:
    """Return the path of the compiled library; compile it if it is not cached.

    Raises:
        BuildError: a requirement of the build is missing, or the compiler failed.
    """
    folder = (cache or default_cache()) / digest()
    built = folder / (NAME + EXTENSION_SUFFIXES[0])
    if built.is_file():
        return built
    reason = unbuildable()
    if reason is not None:
        raise BuildError(reason)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not built.is_file():
                _compile(folder, built)
    except OSError as error:
        raise BuildError(f"the simulated device cannot be written to {folder}: {error.strerror}") from error
    return built


def _compile(folder: Path, built: Path) -> None:
    """Compile in a separate process and folder, then move the library into place atomically."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    environment = {**os.environ, "PATH": _search_path(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = (sys.executable, "-m", "workers.simulated_torch.build", str(work))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    made = work / f"{NAME}.so"
    if done.returncode != 0 or not made.is_file():
        log = folder / "error.txt"
        log.write_text(done.stdout + done.stderr, encoding="utf-8")
        raise BuildError(f"the simulated device does not compile here; the compiler's output is in {log}")
    os.replace(made, built)
    shutil.rmtree(work)


def _search_path() -> str:
    """Return PATH with the folder of this Python first, where pip installs ninja."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))


def main(folder: str) -> None:
    """Compile the library in the given folder, with PyTorch's compiler flags and ours."""
    from torch.utils import cpp_extension  # noqa: PLC0415  torch may be missing

    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    cpp_extension.load(NAME, sources, extra_cflags=list(_FLAGS), build_directory=folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
