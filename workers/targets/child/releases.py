"""Releases of an engine, each installed in its own virtual environment.

An environment is an installation that `--engine-home` can name. It contains only the engine's package; all other
packages are shared with the installation that it was made from. A release that was built for another version of torch
is not installed; its Python sources may be used with the compiled code of an older release (`overlay_environment`).
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import NamedTuple

from workers.targets.target import DeviceError

_TORCH = re.compile(r"torch\s*==\s*([\w.+]+)")
_PIP_SECONDS = 900
_COMPILE = "import compileall, sys; compileall.compile_dir(sys.argv[1], quiet=2)"


class InstallError(DeviceError):
    """A release could not be installed; the message says why, in one line."""


class Release(NamedTuple):
    """One version of an engine's package that an index such as PyPI offers.

    A package that `has_compiled_code` works only with the torch version that it was built for.
    """

    package: str
    version: str
    has_compiled_code: bool = True

    @property
    def name(self) -> str:
        """The release as a pip requirement: `PACKAGE==VERSION`."""
        return f"{self.package}=={self.version}"


def environment_of(release: Release, folder: Path, python: Path) -> Path:
    """Return the virtual environment of a release below `folder`; create it if missing.

    `python` is the Python interpreter of an installation; the environment shares its other packages.

    Raises:
        DeviceError: the release does not fit the shared packages (`InstallError`).
    """
    shared = _site_packages(python)
    torch = _version_of(shared, "torch")
    made = folder / f"{release.package}-{release.version}-torch-{torch}"
    if (made / "installed").exists():
        return made
    if release.has_compiled_code:
        _check_torch(python, release, torch)
    with _environment(made, python, shared) as (temporary, _):
        options = ("--quiet", "--no-deps", "--ignore-installed", release.name)
        _output_of(python, "-m", "pip", "--python", str(temporary / "bin" / "python"), "install", *options)
    return made


def overlay_environment(release: Release, made: Path, python: Path, distributions: Mapping[str, str]) -> None:
    """Make the virtual environment `made`: a release's sources with the compiled modules of an installation.

    `python` is the interpreter of that installation; its other packages are shared. The environment reports the
    version of each of `distributions`. An environment that exists is replaced.

    Raises:
        InstallError: the release was not downloaded.
    """
    shared = _site_packages(python)
    package = release.package
    shutil.rmtree(made, ignore_errors=True)
    with _environment(made, python, shared) as (temporary, own):
        options = ("--quiet", "--no-deps", "--dest", str(temporary), release.name)
        _output_of(python, "-m", "pip", "download", *options)
        (wheel,) = temporary.glob("*.whl")
        with zipfile.ZipFile(wheel) as packed:
            inner = [name for name in packed.namelist() if name.startswith(f"{package}/")]
            packed.extractall(own, [name for name in inner if not name.endswith(".so")])
        wheel.unlink()
        # As pip does: where Python writes no byte code, each start would compile every module again.
        _output_of(python, "-c", _COMPILE, str(own / package))
        for compiled in (shared / package).rglob("*.so"):
            _link(compiled, own / compiled.relative_to(shared))
        for name, version in distributions.items():
            metadata = own / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
            metadata.parent.mkdir()
            metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")


@contextmanager
def _environment(made: Path, python: Path, shared: Path) -> Iterator[tuple[Path, Path]]:
    """Make an environment in a temporary folder for a `with` block; then move it to `made`.

    Yields the temporary folder and its site-packages folder.
    """
    made.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".making-", dir=made.parent))
    try:
        _output_of(python, "-m", "venv", "--without-pip", str(temporary))
        own = temporary / shared.relative_to(python.parents[1])
        # Packages that this environment does not have are imported from the shared folder.
        (own / "shared.pth").write_text(f"{shared}\n", encoding="utf-8")
        yield temporary, own
        (temporary / "installed").touch()
        os.replace(temporary, made)
    except OSError:
        # Another process has created it in the meantime: a folder that is not empty is not replaced.
        if not (made / "installed").exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _link(file: Path, link: Path) -> None:
    """Link a file, which takes no space, or copy it to another file system."""
    link.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, link)
    except OSError:
        shutil.copy2(file, link)


def _check_torch(python: Path, release: Release, torch: str) -> None:
    """Raise if a release pins another torch version than the installed one; download nothing."""
    asked = ("--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-", release.name)
    report = json.loads(_output_of(python, "-m", "pip", "install", *asked))
    required = required_torch(report["install"][0]["metadata"].get("requires_dist", []))
    if required and required.partition("+")[0] != torch.partition("+")[0]:
        raise InstallError(f"{release.package} {release.version} requires torch {required}; {torch} is installed")


def required_torch(requirements: Sequence[str]) -> str:
    """Return the torch version that a package's requirements pin; "" if none is pinned."""
    found = [match[1] for each in requirements if (match := _TORCH.match(each))]
    return next(iter(found), "")


def is_older(number: str, other: str) -> bool:
    """Return whether version `number` precedes `other`; a version without digits is the newest."""
    return bool(number) and _numbers(number) < _numbers(other)


def _site_packages(python: Path) -> Path:
    return Path(_output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())


def _version_of(shared: Path, package: str) -> str:
    found = next(iter(shared.glob(f"{package}-*.dist-info")), None)
    if found is None:
        raise InstallError(f"{shared} holds no {package}")
    return PathDistribution(found).version


def _output_of(*command: str | Path) -> str:
    """Run a command and return its output.

    Raises:
        InstallError: it failed; the message is the last line of its error output.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, check=False, timeout=_PIP_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"pip took more than {_PIP_SECONDS} s") from error
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
        error_line = (errors or done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InstallError(error_line.removeprefix("ERROR: "))
    return done.stdout


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
