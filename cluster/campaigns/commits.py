"""Git queries: commits that change a package's Python sources, and changed files.

The checkout is only read: neither its files nor its index change.
"""

import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from cluster.dispatch.git import git

# Number of commits that are searched if no oldest commit is given.
COMMITS_MAX = 256
_DIGITS = 12
_GIT_SECONDS = 300
# Base commit of a change if none is given: the first of these that exists.
MAIN = ("origin/main", "main")


class RepositoryError(Exception):
    """A folder is no git checkout, or a commit is unknown.

    The message says which, in one line.
    """


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit: its abbreviated hash and the first line of its message."""

    revision: str
    subject: str


@dataclass(frozen=True, slots=True)
class Changes:
    """Changed files of a tree, as paths relative to its root, and the name of the base.

    `before` returns the content of a file in the base, None if the base lacks it.
    """

    files: tuple[str, ...]
    against: str
    before: Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class Repository:
    """A git checkout with the sources of a package in one of its folders."""

    folder: Path
    package: str

    def commits(self, older: str, newer: str) -> list[Commit]:
        """Return the commits up to `newer` that change the package's Python sources, oldest first.

        `older` must be an ancestor: the list begins with the last such commit up to it, and has all later ones. If it
        is empty, the last `COMMITS_MAX` commits are returned. Only first parents are followed: a merge is one commit.

        Raises:
            RepositoryError: the folder is no checkout, a commit is unknown, or `older` is no ancestor of `newer`.
        """
        end = self._revision(newer)
        start = self._revision(older) if older else ""
        if start and not self.is_ancestor(start, end):
            raise RepositoryError(f"{older} is no ancestor of {newer}; `git merge-base {older} {newer}` names one")
        sources = f":(glob){self.package}/**/*.py"
        limits = ("--first-parent", f"--abbrev={_DIGITS}", "--format=%h %s")
        behind = (f"{start}..{end}",) if start else (f"--max-count={COMMITS_MAX}", end)
        lines = self._said("log", *limits, *behind, "--", sources).splitlines()
        first = self._said("log", "--max-count=1", *limits, start).splitlines() if start else []
        found = [Commit(*line.split(" ", 1)) for line in (*lines, *first)]
        if not found:
            raise RepositoryError(f"{newer} has no commit that changes {self.package}/*.py")
        return found[::-1]

    def is_ancestor(self, older: str, newer: str) -> bool:
        """Whether a commit is an ancestor of another one, or the same commit."""
        asked = (self._revision(older), self._revision(newer))
        return self._run("merge-base", "--is-ancestor", *asked).returncode == 0

    def extract(self, commit: str, folder: Path) -> None:
        """Write the package's Python sources as of a commit into a folder.

        Raises:
            RepositoryError: the commit lacks the package.
        """
        done = self._run("archive", "--format=tar", commit, "--", f":(glob){self.package}/**/*.py")
        if done.returncode:
            raise RepositoryError(f"it has no {self.package}/*.py")
        with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
        if not (folder / self.package / "__init__.py").is_file():
            raise RepositoryError(f"it has no {self.package}/__init__.py")

    def holds_package(self) -> bool:
        """Whether git tracks the package in this folder.

        An installed package may lie inside a git checkout that does not track it.

        Raises:
            RepositoryError: git failed.
        """
        first = f"{self.package}/__init__.py"
        done = self._run("ls-files", "--error-unmatch", "--", first)
        said = done.stderr.decode(errors="replace").strip()
        if done.returncode and not any(why in said for why in ("not a git repository", "did not match any file")):
            raise RepositoryError(said.partition("\n")[0].removeprefix("fatal: ") or f"git failed on {first}")
        return not done.returncode

    def changed(self, base: str = "") -> Changes:
        """Return the files that differ from the merge base of HEAD and a commit.

        Uncommitted and untracked files are included. The default commit is the first of `MAIN` that exists, or else
        HEAD.

        Raises:
            RepositoryError: the commit is unknown, or it has no common ancestor with HEAD.
        """
        there = (each for each in MAIN if not self._run("rev-parse", "--verify", "--quiet", each).returncode)
        name = base or next(there, "HEAD")
        parted = self._run("merge-base", self._revision(name), self._revision("HEAD"))
        if parted.returncode:
            raise RepositoryError(f"{name} and HEAD have no commit in common here; a shallow checkout has too few")
        start = parted.stdout.decode().strip()
        tracked = self._said("diff", "--name-only", "--no-renames", "--relative", "-z", start, "--")
        new = self._said("ls-files", "--others", "--exclude-standard", "-z")
        files = sorted({each for each in f"{tracked}{new}".split("\0") if each})
        return Changes(tuple(files), f"{name} ({start[:_DIGITS]})", partial(self._content, start))

    def _content(self, commit: str, file: str) -> bytes | None:
        """Return the content of a file in a commit, None if the commit lacks it."""
        done = self._run("cat-file", "blob", f"{commit}:./{file}")
        return None if done.returncode else done.stdout

    def _revision(self, name: str) -> str:
        return self._said("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", of=name).strip()

    def _said(self, subcommand: str, *question: str, of: str = "") -> str:
        done = self._run(subcommand, *question)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines() or [f"{of} is no commit of it"]
            raise RepositoryError(lines[0].removeprefix("fatal: "))
        return done.stdout.decode(errors="replace")

    def _run(self, subcommand: str, *question: str) -> "subprocess.CompletedProcess[bytes]":
        try:
            return git(self.folder, subcommand, *question, seconds=_GIT_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RepositoryError(f"git: {error}") from error
