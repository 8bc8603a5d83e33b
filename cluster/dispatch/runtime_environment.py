"""Runtime environment of a Ray job: our source tree, and packages that the cluster lacks.

The tree is the checkout, or a copy of the installed files if the program was installed from a wheel. Ray itself is
never installed: a job runs on the Ray of its cluster.
"""

import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, Field

from cluster.dispatch.origin import PACKAGES, ROOT
from scenarios.strict_json import read_json

_MARK = "specstorm-packages "
# The cluster's own Python runs this before any package of this project is there.
PROBE = (
    "python -c 'import importlib.metadata as m, json, sys; "
    f'print("{_MARK}" + json.dumps({{"python": sys.version.split()[0], "packages": '
    '{d.metadata["Name"]: d.version for d in m.distributions()}}))\''
)
# Ray puts the folder of the unpacked working tree here before it installs packages.
_CONSTRAINTS = "-c ${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}/constraints.txt"
RAY = "ray"
DISTRIBUTION = "specstorm"
# Files of the distribution that a job needs.
SENT = ("specstorm.py", *PACKAGES)


_Word = Annotated[str, Field(pattern=r"^[ -~]{1,200}$")]


class _ProbeOutput(BaseModel):
    """Output of the probe job: Python version and installed packages of the head node."""

    python: Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){1,2}$")]
    packages: dict[str, _Word | None]


@dataclass(frozen=True, slots=True)
class Installed:
    """Python version and installed distributions of a cluster's head node."""

    python: str
    packages: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Requirements:
    """Requirements of the project: Python version and distributions."""

    python: SpecifierSet
    packages: tuple[Requirement, ...]

    def misfits(self, installed: Installed) -> list[str]:
        """Return a message per unmet requirement that no job can install: Python, Ray."""
        found = []
        if installed.python not in self.python:
            found.append(f"its Python is {installed.python}, expected {self.python}")
        for wanted, version in self._unmet(installed):
            if wanted.name == RAY:
                found.append(f"its Ray is {version or 'not installed'}, expected {wanted.specifier}")
        return found

    def lacking(self, installed: Installed) -> list[str]:
        """Return the distributions that are missing or have another version."""
        return [str(wanted) for wanted, _ in self._unmet(installed) if wanted.name != RAY]

    def _unmet(self, installed: Installed) -> Iterator[tuple[Requirement, str | None]]:
        for wanted in self.packages:
            version = installed.packages.get(canonicalize_name(wanted.name))
            if version is None or not wanted.specifier.contains(version, prereleases=True):
                yield wanted, version

    def installable(self) -> list[str]:
        """Return the packages that a Ray job may install: all requirements except Ray."""
        return [str(wanted) for wanted in self.packages if wanted.name != RAY]


def is_checkout() -> bool:
    """Whether this program runs from a checkout, not from an installed wheel."""
    return (ROOT / "pyproject.toml").is_file()


@contextmanager
def sent_tree(inputs: Mapping[str, Path]) -> Iterator[Path]:
    """Yield the folder of sources to send with a job.

    It is the checkout, or a copy of the installed files with the inputs by name.

    Raises:
        PackageNotFoundError: it is neither a checkout nor installed.
    """
    if is_checkout():
        yield ROOT
        return
    with tempfile.TemporaryDirectory(prefix="specstorm-") as folder:
        for file in distribution(DISTRIBUTION).files or ():
            if file.parts[0] in SENT and file.suffix != ".pyc":
                _copy(Path(str(file.locate())), Path(folder) / file)
        for name, path in inputs.items():
            _copy(path, Path(folder) / name)
        yield Path(folder)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def requirements_of(root: Path, extras: Sequence[str]) -> Requirements:
    """Return the requirements of a checkout or of the installed distribution, with extras."""
    if not (root / "pyproject.toml").is_file():
        found = distribution(DISTRIBUTION)
        wanted = [Requirement(text) for text in found.requires or ()]
        chosen = [each for each in wanted if _is_chosen(each, extras)]
        return Requirements(SpecifierSet(found.metadata["Requires-Python"]), tuple(map(_without_marker, chosen)))
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = list(project["dependencies"])
    for extra in extras:
        texts += project["optional-dependencies"][extra]
    return Requirements(SpecifierSet(project["requires-python"]), tuple(Requirement(text) for text in texts))


def read_probe(log: str) -> Installed | None:
    """Return the packages in the log of the job `PROBE`.

    None if the log has no such line, or another program wrote it.
    """
    line = next((line for line in log.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        return None
    try:
        listed = _ProbeOutput.model_validate(read_json(line.removeprefix(_MARK).encode()), strict=True)
    except ValueError:
        return None
    packages = {str(canonicalize_name(name)): version for name, version in listed.packages.items() if name}
    return Installed(listed.python, {name: version for name, version in packages.items() if _is_version(version)})


def _is_version(text: str | None) -> TypeGuard[str]:
    try:
        return text is not None and bool(Version(text))
    except InvalidVersion:
        return False


def _is_chosen(wanted: Requirement, extras: Sequence[str]) -> bool:
    return wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _without_marker(wanted: Requirement) -> Requirement:
    return Requirement(f"{wanted.name}{wanted.specifier}")


def runtime_env(root: Path, install: Sequence[str]) -> dict[str, Any]:
    """Return Ray's runtime environment: a source tree, and packages to install.

    Their versions are the tested ones, or those installed locally.
    """
    environment: dict[str, Any] = {"working_dir": str(root), "env_vars": {"RAY_DEDUP_LOGS": "0"}}
    if install and (root / "constraints.txt").is_file():
        environment["pip"] = {"packages": [_CONSTRAINTS, *install], "pip_check": False}
    elif install:
        environment["pip"] = {"packages": list(map(_as_here, install)), "pip_check": False}
    return environment


def _as_here(wanted: str) -> str:
    """Return a requirement, pinned to the version that is installed on this machine."""
    name = Requirement(wanted).name
    try:
        return f"{name}=={distribution(name).version}"
    except PackageNotFoundError:
        return wanted
