"""Git queries on a stranger's checkout: they start no program that its configuration names."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.campaigns.commits import Repository
from cluster.dispatch.git import git

WHO = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a"}


def plainly(folder: Path, *words: str, text: str = "") -> str:
    """Run git without our protections; return its output."""
    environment = {**os.environ, **WHO, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(
        ["git", "-C", str(folder), *words], env=environment, input=text, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a package and one uncommitted change."""
    folder = tmp_path / "checkout"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "package" / "a.py").write_text("1\n")
    (folder / ".gitattributes").write_text("*.py filter=a=b diff=shown\n")
    plainly(folder, "init", "--quiet", "--initial-branch=main")
    plainly(folder, "add", ".")
    plainly(folder, "commit", "--quiet", "--message", "first")
    (folder / "package" / "a.py").write_text("2\n")
    return folder


def started(folder: Path) -> Path:
    return folder.parent / "started"


def program(folder: Path) -> Path:
    """Return a program that creates a marker file and prints its input."""
    path = folder.parent / "program"
    path.write_text(f'#!/bin/sh\necho "$0 $*" >> {started(folder)}\n[ "$1" = copy ] && cat\nexit 0\n')
    path.chmod(0o755)
    return path


def signed(folder: Path) -> None:
    """Make a commit with a signature that `git log` would verify by a program."""
    plainly(folder, "commit", "--quiet", "--all", "--message", "second")
    head, _, body = plainly(folder, "cat-file", "commit", "HEAD").partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----"
    name = plainly(folder, "hash-object", "-t", "commit", "-w", "--stdin", text=f"{head}\n{signature}\n\n{body}\n")
    plainly(folder, "reset", "--quiet", "--soft", name)
    plainly(folder, "config", "gpg.program", str(program(folder)))
    plainly(folder, "config", "log.showSignature", "true")


def fetched(folder: Path) -> None:
    """Remove an object that git would fetch from a promisor remote, by the checkout's programs."""
    name = plainly(folder, "rev-parse", "HEAD:package/a.py")
    plainly(folder, "checkout", "--", ".")
    (folder / ".git" / "objects" / name[:2] / name[2:]).unlink()
    for setting in ("url=" + str(folder), "promisor=true", f"uploadpack={program(folder)}"):
        plainly(folder, "config", *f"remote.origin.{setting}".split("=", 1))
    plainly(folder, "config", "extensions.partialClone", "origin")
    plainly(folder, "config", "core.repositoryFormatVersion", "1")


def hook(folder: Path) -> None:
    path = folder / ".git" / "hooks" / "post-index-change"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(program(folder), path)
    os.utime(folder / "package" / "__init__.py", (1, 1))


def configured(key: str, argument: str = "") -> Callable[[Path], None]:
    return lambda folder: print(plainly(folder, "config", key, f"{program(folder)}{argument}"))


# How a checkout names a program, and a question that starts it where nothing prevents that.
ATTACKS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "monitor": (configured("core.fsmonitor"), ("status", "--porcelain")),
    "hook": (hook, ("status", "--porcelain")),
    "clean": (configured("filter.a=b.clean", " copy"), ("diff", "--name-only", "HEAD", "--")),
    "process": (configured("filter.a=b.process"), ("diff", "--name-only", "HEAD", "--")),
    "smudge": (configured("filter.a=b.smudge", " copy"), ("archive", "--format=tar", "HEAD")),
    "external": (configured("diff.external"), ("diff", "HEAD", "--")),
    "driver": (configured("diff.shown.command"), ("diff", "HEAD", "--")),
    "text": (configured("diff.shown.textconv"), ("diff", "HEAD", "--")),
    "signature": (signed, ("log", "--format=%h %s")),
    "transport": (fetched, ("archive", "--format=tar", "HEAD")),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_git_starts_no_program_that_a_checkout_names(attack: str, checkout: Path) -> None:
    prepare, question = ATTACKS[attack]
    prepare(checkout)
    started(checkout).unlink(missing_ok=True)
    git(checkout, *question, seconds=30)
    for subcommand in ("status", "diff", "log", "archive"):
        git(checkout, subcommand, *(["HEAD"] if subcommand == "archive" else []), seconds=30)
    repository = Repository(checkout, "package")
    assert repository.holds_package()
    repository.changed("HEAD")
    repository.commits("", "HEAD")
    assert not started(checkout).exists()
    plainly(checkout, *question)
    assert started(checkout).exists(), "the attack works where nothing prevents it"


def test_git_answers_about_its_folder_whatever_the_environment_names(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_EXTERNAL_DIFF"):
        monkeypatch.setenv(name, "/nowhere")
    done = git(checkout, "diff", "--name-only", "HEAD", "--", seconds=30)
    assert done.stdout == b"package/a.py\n"
