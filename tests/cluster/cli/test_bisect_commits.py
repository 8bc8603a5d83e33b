"""Command `bisect --repository`: commits of a checkout, which stays unchanged."""

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cluster.cli import bisect_command
from cluster.cli import main as cli
from cluster.reports.documents import BisectDocument
from scenarios.trace import Trace
from tests.cluster.cli.test_bisect import AGREED, CRASHED, TRACE
from workers.record.verdict import Judgement
from workers.targets.target import DeviceError, RunConfig

GIT = (
    "git",
    "-c",
    "user.name=a",
    "-c",
    "user.email=a@b",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "init.defaultBranch=main",
)
# A commit subject, a file, and its new text or None to remove it.
Change = tuple[str, str, str | None]
HISTORY: Sequence[Change] = (
    ("begin", "vllm/__init__.py", ""),
    ("write core", "vllm/core.py", "right"),
    ("explain", "README.md", "no source"),
    ("break the start", "vllm/core.py", "no start"),
    ("rewrite core", "vllm/v1/core.py", "wrong"),
    ("mend the start", "vllm/core.py", "right"),
    ("add data", "vllm/data.json", "{}"),
    ("rename", "vllm/other.py", ""),
)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run([*GIT, "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository_of(folder: Path, history: Sequence[Change]) -> Mapping[str, str]:
    """Make a git repository; return the revision of each commit by its subject."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    made = {}
    for subject, name, text in history:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink() if text is None else file.write_text(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", subject)
        made[subject] = git(folder, "rev-parse", "HEAD")[:12]
    return made


class Judge:
    """Judge that finds a bug in sources with `wrong`, and cannot start sources with `no start`."""

    def judge(self, trace: Trace, sweep: bool, config: RunConfig) -> Judgement:
        texts = [file.read_text() for file in Path(config.engine_path).rglob("*") if file.is_file()]
        assert not any(text in ("{}", "no source") for text in texts), "sources alone are laid over"
        if "no start" in texts:
            raise DeviceError("engine vllm-v1: it does not start")
        verdict = CRASHED if "wrong" in texts else AGREED
        return Judgement(verdict=verdict, trace=trace.explicit(), schedules=1)


@pytest.fixture
def bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bisect_command, "load_judge", lambda name: Judge())
    (tmp_path / "bug.yaml").write_text(TRACE)
    return tmp_path / "bug.yaml"


def test_first_bad_commit_is_printed_with_subject_and_skipped_ones(
    tmp_path: Path, bug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = repository_of(tmp_path / "checkout", HISTORY)
    (tmp_path / "checkout" / "vllm" / "core.py").write_text("of the user's, not committed")
    before = git(tmp_path / "checkout", "status", "--porcelain", "--branch"), git(tmp_path / "checkout", "reflog")
    good = made["write core"]
    options = ["--engine", "vllm", "--repository", str(tmp_path / "checkout"), "--good", good]
    assert cli.run(["bisect", str(bug), *options]) == 1
    start, rewrite, mend, last = (made[each[0]] for each in (HISTORY[3], HISTORY[4], HISTORY[5], HISTORY[7]))
    assert capsys.readouterr().out.splitlines() == [
        f"{last} bad      crash step IndexError: N  (rename)",
        f"{good} good     agreed  (write core)",
        f"{rewrite} skipped  engine vllm-v1: it does not start  (rewrite core)",
        f"{start} skipped  engine vllm-v1: it does not start  (break the start)",
        f"{mend} bad      crash step IndexError: N  (mend the start)",
        "",
        f"first bad: {mend} (mend the start); last good: {good}; {start}, {rewrite} between them inconclusive",
    ]
    after = git(tmp_path / "checkout", "status", "--porcelain", "--branch"), git(tmp_path / "checkout", "reflog")
    assert after == before


def test_an_older_bad_commit_than_the_good_one_asks_for_the_first_good_one(
    tmp_path: Path, bug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = repository_of(tmp_path / "checkout", [*HISTORY, ("mend core", "vllm/v1/core.py", None)])
    options = ["--repository", str(tmp_path / "checkout"), "--bad", made["mend the start"], "--good", "HEAD", "--json"]
    assert cli.run(["bisect", str(bug), *options]) == 1
    document = BisectDocument.model_validate(json.loads(capsys.readouterr().out))
    assert (document.last_bad, document.first_good) == (made["rename"], made["mend core"])
    assert {entry.version: entry.subject for entry in document.releases}[made["rename"]] == "rename"


def test_without_a_good_commit_all_commits_are_searched(
    tmp_path: Path, bug: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = repository_of(tmp_path / "checkout", [HISTORY[0], HISTORY[1], HISTORY[4]])
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert cli.run(["bisect", str(bug), "--repository", str(tmp_path / "checkout")]) == 1
    last = f"first bad: {made['rewrite core']} (rewrite core); last good: {made['write core']}"
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_good_commit_that_does_not_start_stays_good(
    tmp_path: Path, bug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = repository_of(tmp_path / "checkout", HISTORY)
    options = ["--repository", str(tmp_path / "checkout"), "--good", made["break the start"]]
    assert cli.run(["bisect", str(bug), *options]) == 1
    lines = capsys.readouterr().out.splitlines()
    seen = "as given by --good; engine vllm-v1: it does not start"
    assert lines[1] == f"{made['break the start']} good     {seen}  (break the start)"
    assert lines[-1].startswith(f"first bad: {made['mend the start']} (mend the start); last good: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--good", "HEAD"], "--good and --bad need a git checkout; give it with --repository DIR"),
        (
            ["--repository", "{}", "--versions", "0.1"],
            "--repository cannot be combined with --versions or --environments, which select releases",
        ),
        (["--repository", "{}", "--good", "v9"], "--repository is {}: v9 is no commit of it"),
        (["--repository", "{}", "--good", "--all"], "--repository is {}: --all is no commit of it"),
        (
            ["--repository", "{}", "--good", "side"],
            "--repository is {}: side is no ancestor of HEAD; `git merge-base side HEAD` names one",
        ),
        (["--repository", "{}/..", "--good", "a"], "--repository is {}/..: not a git repository"),
        (["--repository", "{}", "--bad", "side"], "--repository is {}: side has no commit that changes vllm/*.py"),
        (
            ["--repository", "{}", "--engine", "specstorm"],
            "--engine is specstorm; not supported, as this engine has no separate sources",
        ),
    ],
)
def test_commits_that_cannot_be_tried_are_refused(
    options: list[str], message: str, tmp_path: Path, bug: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = tmp_path / "checkout"
    repository_of(checkout, HISTORY[:2])
    git(checkout, "checkout", "--quiet", "--orphan", "side")
    git(checkout, "rm", "--quiet", "-r", "-f", ".")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message", "elsewhere")
    git(checkout, "checkout", "--quiet", "main")
    assert cli.run(["bisect", str(bug), *(option.format(checkout) for option in options)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"specstorm: {message.format(checkout)}")
    assert said.count("\n") == 1
