"""Hostile texts in stored data: no command prints or writes one without escaping it.

Verifies: every command that reads a campaign, a finding, a job's log or a scenario; by every character that it prints.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.job_server import JobState
from cluster.reports.report import Line, block
from cluster.reports.terminal import GuardedStream, show
from scenarios.visible import is_visible
from tests.cluster.hostile import HOSTILE, campaign, judgements

# A folder may have any name without a slash.
FOLDER = re.sub("[/\udcff]", "", HOSTILE)[:60] + "\u202e\u3164"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return campaign(tmp_path_factory.mktemp("hostile") / FOLDER)


def hidden(text: str) -> list[str]:
    """Return the lines of a text that contain a hidden character."""
    return [line for line in text.split("\n") if not is_visible(line)]


def commands(text: str) -> list[str]:
    """Return the lines of a log with GitHub workflow commands."""
    return [line for line in text.split("\n") if re.match(r"\s*::|.*##\[", line)]


def hidden_in(folder: Path) -> Iterator[str]:
    """Yield file names and lines of a folder's text files that contain a hidden character."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "sqlite" not in path.name):
        yield from (f"{path.name}: {line!r}" for line in hidden(path.read_bytes().decode()))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["report", "{folder}", "--out", "{out}"], 0),
        (["merge", "{folder}", "--out", "{out}"], 1),
        (["watch", "{folder}", "--once"], 0),
        (["validate", "{file}"], 0),
        (["replay", "{file}"], 0),
        (["run", "{file}", "--ray", "off", "--out", "{out}", "-v", "--durations", "3"], 0),
        (["run", "{file}", "--list"], 0),
        (["extract", "{log}"], 0),
        (["triage", "{bug}", "--known", "{out}"], 2),
        (["explain", "{bug}"], 2),
        (["shrink", "{file}", "--out", "{out}"], 0),
    ],
    ids=str,
)
def test_no_command_prints_or_writes_a_hidden_character(
    words: list[str],
    expected: int,
    folder: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / f"{FOLDER}.yaml"
    os.link(next((folder / "artefacts").glob("*.yaml")), file)
    log = tmp_path / "log"
    log.write_text(f"----- artefact campaigns/a/artefacts/kv-00000000.yaml\n{HOSTILE}\n----- end of artefact\n")
    places = {"folder": folder, "out": tmp_path / "out", "file": file, "log": log, "bug": HOSTILE}
    assert cli.run([word.format(**places) for word in words]) == expected
    said = capfd.readouterr()
    assert hidden(said.out + said.err) == commands(said.out + said.err) == []
    assert list(hidden_in(tmp_path / "out")) == []


def test_annotations_are_the_only_commands_to_a_runner(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(folder), "--out", str(tmp_path), "--github", "--timelines", "0"]) == 0
    lines = capfd.readouterr().out.splitlines()
    obeyed = [line for line in lines if commands(line)]
    assert obeyed
    assert all(re.match(r"::error file=[^:,]*,line=1,title=[^:,]*::", line) for line in obeyed)
    assert all(map(is_visible, lines))


def test_no_verdict_in_words_leaves_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    for name, judgement in judgements().items():
        show(*block(Line(name, judgement, HOSTILE, HOSTILE)))
    said = capfd.readouterr().out
    assert hidden(said) == commands(said) == []


def test_the_message_and_command_of_a_job_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    _, remark = JobState("FAILED", None, HOSTILE, {"command": HOSTILE, "campaign": HOSTILE}).own_code(None)
    show(remark)
    (line,) = capfd.readouterr().out.splitlines()
    assert is_visible(line)


def test_a_stream_escapes_what_any_other_writer_prints(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        GuardedStream(file).write(f"{HOSTILE}\x1b[31m\n")
    assert all(map(is_visible, (tmp_path / "out").read_text().split("\n")))
