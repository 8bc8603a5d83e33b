"""Builds of an engine for `bisect`: releases, or commits of its sources."""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from cluster.campaigns.commits import Repository, RepositoryError
from cluster.cli.inputs import InputError
from workers.targets.registry import known_engines, target_kind
from workers.targets.target import DeviceError, RunConfig

# Folder of installed releases, relative to the user's home.
CACHE = Path(".cache", "specstorm", "engines")
VERSION = re.compile(r"\d+(\.\d+)+(\.?(post|rc)\d+)?")


@dataclass(frozen=True, slots=True)
class Releases:
    """Releases of an engine, each installed in its own subfolder."""

    config: RunConfig
    names: Sequence[str]
    folder: Path
    noun: str = "release"
    subjects: Mapping[str, str] = field(default_factory=dict)

    def is_declared_good(self, name: str) -> bool:
        return False

    def running(self, name: str) -> AbstractContextManager[RunConfig]:
        return target_kind(self.config.engine).release(name, self.folder, self.config)


@dataclass(frozen=True, slots=True)
class Commits:
    """Commits of an engine's sources, each overlaid on the installation."""

    config: RunConfig
    repository: Repository
    subjects: Mapping[str, str]
    # The oldest commit, if the user says that it does not have the bug.
    good: str
    noun: str = "commit"

    @property
    def names(self) -> Sequence[str]:
        return [*self.subjects]

    def is_declared_good(self, name: str) -> bool:
        return name == self.good

    @contextmanager
    def running(self, name: str) -> Iterator[RunConfig]:
        with tempfile.TemporaryDirectory(prefix="specstorm-commit-") as folder:
            try:
                self.repository.extract(name, Path(folder))
            except RepositoryError as error:
                raise DeviceError(str(error)) from error
            with target_kind(self.config.engine).overlaid(Path(folder), self.config) as config:
                yield config


def releases_of(config: RunConfig, versions: str, folder: Path | None, commit: str) -> Releases:
    """Return the releases of an engine that `--versions` names; by default the known ones.

    Raises:
        InputError: the engine has none, a name is not a version, versions are not in order, or a commit is named.
    """
    if commit:
        raise InputError("--good and --bad need a git checkout; give it with --repository DIR")
    known = target_kind(config.engine).releases
    if not known:
        released = [name for name in known_engines() if target_kind(name).releases]
        raise InputError(f"--engine is {config.engine}; it has no releases: {' and '.join(released)} have")
    return Releases(config, _versions(versions, known), folder if folder is not None else Path.home() / CACHE)


def _versions(text: str, releases: Sequence[str]) -> list[str]:
    """Return the versions in `--versions`, oldest first; without it the known ones.

    Raises:
        InputError: a name is not a version, or versions are not in order.
    """
    versions = text.split(",") if text else list(releases)
    for version in versions:
        if not VERSION.fullmatch(version):
            raise InputError(
                f"--versions: {version!r} is not a version; give versions such as {releases[0]}, separated by commas"
            )
    numbers = [[int(number) for number in re.findall(r"\d+", version)] for version in versions]
    if any(older >= newer for older, newer in pairwise(numbers)):
        raise InputError(f"--versions: {text}; give the oldest version first, each once")
    return versions


def commits_of(config: RunConfig, folder: Path, ends: tuple[str, str], are_releases_named: bool) -> Commits:
    """Return the commits between a good and a bad one of a checkout, whichever is older.

    Raises:
        InputError: the engine has no sources, the checkout lacks a commit, or releases are also named.
    """
    if are_releases_named:
        raise InputError("--repository cannot be combined with --versions or --environments, which select releases")
    package, good, newer = target_kind(config.engine).package, ends[0], ends[1] or "HEAD"
    if not package:
        raise InputError(f"--engine is {config.engine}; not supported, as this engine has no separate sources")
    repository = Repository(folder, package)
    try:
        is_fix = bool(good) and repository.is_ancestor(newer, good)
        found = repository.commits(newer, good) if is_fix else repository.commits(good, newer)
    except RepositoryError as error:
        raise InputError(f"--repository is {folder}: {error}") from error
    told = found[0].revision if good and not is_fix else ""
    return Commits(config, repository, {each.revision: each.subject for each in found}, told)
