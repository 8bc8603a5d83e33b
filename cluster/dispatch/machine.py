"""Checks of a machine: processors, memory, disk, limits, Python, packages, Ray.

Does not verify: that an engine runs, which needs a trace.
"""

import importlib.metadata
import os
import platform
import resource
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from cluster.dispatch.host import ReachError
from cluster.dispatch.job_server import ADDRESS_DEFAULT, ADDRESS_VARIABLE, ServerError, asks_for_token
from cluster.dispatch.origin import ROOT
from cluster.dispatch.pool import OBJECT_STORE_BYTES
from cluster.dispatch.reach import reach, token_file
from cluster.dispatch.runtime_environment import requirements_of
from scenarios.spec import Value

State: TypeAlias = Literal["yes", "limited", "no"]
GIB = 1 << 30
# Memory of an engine's process and its helpers; more with PyTorch.
WORKER_BYTES = 300 << 20
OPEN_FILES_MIN = 4096
_CGROUP = Path("/sys/fs/cgroup")


class Check(Value):
    """Result of one check of this machine: what was found, and a remedy if it is not enough."""

    name: str
    state: State
    seen: str
    remedy: str = ""


def _check(name: str, is_enough: bool, seen: str, remedy: str, otherwise: State = "limited") -> Check:
    """Return a check, with a remedy only if the property is not sufficient."""
    if is_enough:
        return Check(name=name, state="yes", seen=seen)
    return Check(name=name, state=otherwise, seen=seen, remedy=remedy)


def checks_of_machine(folder: Path) -> list[Check]:
    """Check Python, processors, memory, disk, limits and GPUs for campaigns in a folder."""
    return [_python(), _processors(), _memory(), _shared_memory(), _disk(folder), _open_files(), _gpus()]


def checks_of_packages() -> list[Check]:
    """Check the required and the optional packages."""
    found = [_package(wanted) for wanted in _wanted(())]
    for extra, names in {"gpu": ("torch", "triton"), "figures": ("matplotlib",)}.items():
        found += [_package(wanted) for wanted in _wanted((extra,)) if wanted.name in names]
    return found


def checks_of_servers() -> list[Check]:
    """Check Ray's token, the cluster that `--ray auto` joins, and the job server."""
    return [_token(), _cluster(), _job_server()]


def _python() -> Check:
    seen = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if (ROOT / "pyproject.toml").is_file():
        wanted = requirements_of(ROOT, ()).python
    else:
        wanted = SpecifierSet(importlib.metadata.metadata("specstorm")["Requires-Python"] or "")
    return _check("python", platform.python_version() in wanted, seen, f"a Python of {wanted}", "no")


def _wanted(extras: Sequence[str]) -> list[Requirement]:
    """Return the requirements in some extras of this distribution.

    Without extras, return the base requirements.
    """
    if (ROOT / "pyproject.toml").is_file():
        plain = requirements_of(ROOT, ()).packages
        return [each for each in requirements_of(ROOT, extras).packages if not extras or each not in plain]
    texts = importlib.metadata.requires("specstorm") or []
    found = [Requirement(text) for text in texts]
    if not extras:
        return [each for each in found if each.marker is None or each.marker.evaluate({"extra": ""})]
    return [each for each in found if each.marker and any(each.marker.evaluate({"extra": name}) for name in extras)]


def _package(wanted: Requirement) -> Check:
    remedy = f"pip install '{wanted.name}{wanted.specifier}'"
    try:
        version = importlib.metadata.version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name=wanted.name, state="no", seen="not installed", remedy=remedy)
    if wanted.specifier.contains(version, prereleases=True):
        return Check(name=wanted.name, state="yes", seen=version)
    return Check(name=wanted.name, state="limited", seen=f"{version}, wanted {wanted.specifier}", remedy=remedy)


def usable_processors() -> float:
    """Return the number of processors available to this process.

    The process's affinity and its container's share limit it.
    """
    own = float(len(os.sched_getaffinity(0)))
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return own if quota == "max" else min(own, int(quota) / int(period))
    except (OSError, ValueError):
        return own


def _processors() -> Check:
    usable = usable_processors()
    seen = f"{usable:g} of {os.cpu_count()} are available; as many engines run at a time"
    return _check("processors", usable >= 2, seen, "a machine or container with two or more")


def available_memory() -> tuple[int, int]:
    """Return the available and the total bytes of memory, within a container's limit."""
    values = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, text = line.partition(":")
        values[name] = int(text.split()[0]) * 1024
    total, available = values["MemTotal"], values["MemAvailable"]
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return available, total
    return min(available, max(0, limit - used)), min(total, limit)


def _memory() -> Check:
    available, total = available_memory()
    fit = max(0, available - GIB) // WORKER_BYTES
    seen = f"{available / GIB:.1f} GiB of {total / GIB:.1f} are free: room for about {fit} engines beside Ray"
    return _check("memory", fit >= usable_processors(), seen, f"--workers {max(1, fit)}, or --ray off for one")


def _shared_memory() -> Check:
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return Check(name="shared memory", state="no", seen="there is no /dev/shm", remedy="Linux")
    seen = f"{free / GIB:.2f} GiB are free in /dev/shm"
    remedy = f"{OBJECT_STORE_BYTES >> 20} MiB for Ray's object store (docker run --shm-size 1g); otherwise it uses /tmp"
    return _check("shared memory", free >= OBJECT_STORE_BYTES, seen, remedy)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    seen = f"{free / GIB:.1f} GiB are free at {folder}"
    if not os.access(folder, os.W_OK):
        return Check(name="disk", state="limited", seen=f"{folder} cannot be written", remedy="--out elsewhere")
    return _check("disk", free >= GIB, seen, "--out on a disk with a GiB for a night")


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    are_enough = soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MIN
    remedy = f"ulimit -n {max(hard, OPEN_FILES_MIN)}, for many workers"
    return _check("open files", are_enough, f"{soft} at most", remedy)


def _gpus() -> Check:
    asking = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(asking, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        remedy = "a GPU with NVIDIA's driver, for --device cuda alone"
        return Check(name="gpu", state="no", seen="none is seen by nvidia-smi", remedy=remedy)
    seen = "; ".join(line.strip() for line in done.stdout.splitlines())
    if shutil.which("cc") or shutil.which("gcc"):
        return Check(name="gpu", state="yes", seen=seen)
    remedy = "a C compiler: Triton makes the launchers of its kernels with it"
    return Check(name="gpu", state="limited", seen=f"{seen}; no C compiler", remedy=remedy)


def _token() -> Check:
    mode = os.environ.get("RAY_AUTH_MODE", "not set")
    path = token_file()
    if os.environ.get("RAY_AUTH_TOKEN"):
        return Check(name="ray's token", state="yes", seen=f"in RAY_AUTH_TOKEN; RAY_AUTH_MODE is {mode}")
    if not path.is_file():
        seen = f"none; a private Ray creates its own; the token of a cluster belongs in {path}"
        return Check(name="ray's token", state="yes", seen=seen)
    is_private = not stat.S_IMODE(path.stat().st_mode) & 0o077
    seen = f"in {path}; RAY_AUTH_MODE is {mode}{'' if is_private else '; others can read it'}"
    return _check("ray's token", is_private, seen, f"chmod 600 {path}")


def _cluster() -> Check:
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        return Check(name="ray cluster", state="yes", seen="RAY_ADDRESS is not set: a command starts a Ray of its own")
    return _asked("ray cluster", f"{address} answers", lambda: reach(address))


def _job_server() -> Check:
    address = os.environ.get(ADDRESS_VARIABLE) or ADDRESS_DEFAULT
    return _asked("job server", f"{address} answers", lambda: asks_for_token(address))


def _asked(name: str, seen: str, ask: Callable[[], object]) -> Check:
    try:
        ask()
    except (ReachError, ServerError) as error:
        what, _, remedy = str(error).partition("; ")
        return Check(name=name, state="no", seen=what, remedy=remedy)
    return Check(name=name, state="yes", seen=seen)
