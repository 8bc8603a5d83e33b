"""Files of a source tree that differ from a commit or from the installed package."""

import shutil
from pathlib import Path

import pytest

from cluster.campaigns.commits import RepositoryError
from cluster.campaigns.hunt.gate import changes_of
from tests.cluster.cli.test_bisect_commits import git, repository_of

HISTORY = (("begin", "ours/__init__.py", ""), ("write core", "ours/core.py", "right"), ("explain", "README.md", "-"))


def test_change_includes_commits_since_main_and_uncommitted_files(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    made = repository_of(tree, HISTORY)
    assert changes_of(tree, "ours", "", None).files == ()
    git(tree, "checkout", "--quiet", "-b", "change")
    (tree / "ours" / "core.py").write_text("wrong")
    git(tree, "commit", "--quiet", "--all", "--message", "change")
    # What main has got meanwhile is no part of the change.
    git(tree, "checkout", "--quiet", "main")
    (tree / "ours" / "theirs.py").touch()
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "theirs")
    git(tree, "checkout", "--quiet", "change")
    (tree / "README.md").write_text("+")
    (tree / "ours" / "a new one.py").touch()
    changes = changes_of(tree, "ours", "", tmp_path)
    assert changes.files == ("README.md", "ours/a new one.py", "ours/core.py")
    assert changes.against == f"main ({made['explain']})"
    assert [changes.before(file) for file in changes.files] == [b"-", None, b"right"]
    assert changes_of(tree, "ours", "HEAD", None).files == ("README.md", "ours/a new one.py")
    assert changes_of(tree, "ours", made["begin"], None).files == changes.files
    # One that is in the remote's branch, too, is held against that.
    git(tree, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert changes_of(tree, "ours", "", None).files == ("README.md", "ours/a new one.py")


def test_without_main_branch_uncommitted_files_are_the_change(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    repository_of(tree, HISTORY)
    git(tree, "branch", "--move", "other")
    (tree / "ours" / "core.py").write_text("wrong")
    changes = changes_of(tree, "ours", "", None)
    assert changes.files == ("ours/core.py",)
    assert changes.against.startswith("HEAD (")


def test_unknown_or_unrelated_base_commit_is_refused(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    repository_of(tree, HISTORY)
    with pytest.raises(RepositoryError, match=r"^gone is no commit of it$"):
        changes_of(tree, "ours", "gone", None)
    git(tree, "checkout", "--quiet", "--orphan", "alone")
    git(tree, "commit", "--quiet", "--message", "alone")
    with pytest.raises(RepositoryError, match=r"^main and HEAD have no commit in common here; a shallow checkout"):
        changes_of(tree, "ours", "", None)


def test_tree_without_checkout_is_compared_with_the_installed_package(tmp_path: Path) -> None:
    repository_of(tmp_path / "another", (("begin", "README.md", ""),))
    installed = tmp_path / "installed"
    for name, text in {"__init__.py": "", "core.py": "right", "only_there.py": ""}.items():
        (installed / "ours" / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / "ours" / name).write_text(text)
    for tree in (tmp_path / "alone", tmp_path / "another" / "below"):
        shutil.copytree(installed, tree)
        (tree / "ours" / "only_there.py").unlink()
        assert changes_of(tree, "ours", "", installed).files == ()
        (tree / "ours" / "core.py").write_text("wrong")
        (tree / "ours" / "new.py").touch()
        changes = changes_of(tree, "ours", "", installed)
        assert changes.files == ("ours/core.py", "ours/new.py")
        assert [changes.before(file) for file in changes.files] == [b"right", None]
        assert changes.against == f"the installation in {installed}"
    with pytest.raises(RepositoryError, match="not a git repository"):
        changes_of(tmp_path / "alone", "ours", "HEAD", installed)


def test_checkout_that_git_cannot_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("nonsense")
    with pytest.raises(RepositoryError, match="invalid gitfile format"):
        changes_of(tmp_path, "ours", "", tmp_path)
