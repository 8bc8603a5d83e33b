"""Hostile input files: each command ends at once, with one line and exit code 2."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cluster.cli import main as cli
from cluster.dispatch.origin import ROOT
from scenarios.codec import BYTES_MAX
from tests.cluster.cli.test_commands import SCENARIO

COMMANDS = {
    "validate": ("validate", "FILE"),
    "run": ("run", "FILE", "--ray", "off"),
    "replay": ("replay", "FILE"),
    "shrink": ("shrink", "FILE"),
    "bisect": ("bisect", "FILE"),
    "export": ("export", "FILE"),
    "evidence": ("export", "a.yaml", "--evidence", "FILE"),
    "extract": ("extract", "FILE"),
    "corpus": ("hunt", "--traces", "1", "--ray", "off", "--corpus", "FILE"),
}
KINDS = ("pipe", "device", "kernel log", "folder", "sparse", "loop", "nothing", "not UTF-8")


def hostile(kind: str, folder: Path) -> Path:
    """Create a hostile file of a kind (pipe, device, folder, sparse file ...); return its path."""
    path = folder / "hostile.yaml"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "kernel log":
            path.symlink_to("/proc/kmsg")
        case "folder":
            path.mkdir()
        case "sparse":
            with path.open("wb") as file:
                file.truncate(1 << 40)
        case "loop":
            path.symlink_to(path)
        case "not UTF-8":
            path = folder / os.fsdecode(b"hostile-\xff.yaml")
            path.write_bytes(b"\xff")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_a_hostile_file_in_one_line(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(SCENARIO.format(seed=1))
    file = hostile(kind, tmp_path)
    assert cli.run([word.replace("FILE", str(file)) for word in COMMANDS[command]]) == 2
    out, err = capsys.readouterr()
    said = [line for line in f"{out}{err}".splitlines() if "hostile" in line]
    assert len(said) == 1
    assert said[0].isprintable()
    assert len(said[0]) < 500
    assert not Path("campaigns").exists()


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
@pytest.mark.parametrize("command", ["report", "watch", "merge", "run"])
def test_database_that_is_no_regular_file_is_refused(
    command: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(SCENARIO.format(seed=1))
    Path("camp").mkdir()
    hostile(kind, tmp_path).rename("camp/campaign.sqlite")
    words = {
        "run": ["run", "a.yaml", "--ray", "off", "--out", "camp"],
        "merge": ["merge", "camp", "camp", "--out", "m"],
    }
    more = ["--once"] if command == "watch" else []
    assert cli.run(words.get(command, [command, "camp", *more])) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "camp" in line
    assert not Path("m").exists()


def test_merge_copies_nothing_that_a_link_leads_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(SCENARIO.format(seed=1))
    Path("secret.yaml").write_text("mine")
    assert cli.run(["run", "a.yaml", "--ray", "off", "--out", "camp"]) == 0
    Path("camp", "artefacts", "kv-0.yaml").symlink_to(tmp_path / "secret.yaml")
    Path("camp", "seldom").symlink_to(tmp_path)
    assert cli.run(["merge", "camp", "--out", "m"]) == 0
    assert not [path for path in Path("m").rglob("*.yaml") if path.read_text() == "mine"]


@pytest.mark.parametrize("size", [BYTES_MAX, 5 << 20])
def test_name_of_a_request_that_is_megabytes_long_is_refused_in_a_short_line(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.yaml"
    event = f"{{tick: 0, do: submit, request: {'a' * (size - 200)}, prompt: [1], max_tokens: 2}}"
    file.write_text(f"events: [{event}]\n")
    assert cli.run(["replay", str(file)]) == 2
    assert len(capsys.readouterr().err) < 1000


@pytest.mark.parametrize("words", [["validate", "a" * 5_000_000], ["a" * 5_000_000], ["run", "--out", "a" * 5_000_000]])
def test_word_of_megabytes_is_refused_in_a_short_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(words) == 2
    assert len("".join(capsys.readouterr())) < 4000


@pytest.mark.parametrize("files", [6, 20, 63])
def test_process_that_may_open_few_files_is_refused_in_one_line(files: int, tmp_path: Path) -> None:
    shell = f'ulimit -n {files}; exec "$0" -m cluster validate "$1"'
    (tmp_path / "a.yaml").write_text(SCENARIO.format(seed=1))
    command = ["/bin/sh", "-c", shell, sys.executable, str(tmp_path / "a.yaml")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"specstorm: a process may open {files} files here (ulimit -n); at least 64 are required\n"


def test_campaign_whose_name_is_not_utf8_is_kept_and_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scenario, out = os.fsdecode(b"a-\xff.yaml"), os.fsdecode(b"camp-\xff")
    Path(scenario).write_text(SCENARIO.format(seed=1))
    for said in ("1 scenario: 1 agreed", "kept from an earlier run: 1 of 1 results"):
        assert cli.run(["run", scenario, "--ray", "off", "--out", out]) == 0
        assert said in capsys.readouterr().out
    assert cli.run(["report", out]) == 0


# Modules that open files which are not inputs: of this program, of the system, of the engine that the user named.
OWN_FILES = {
    "cluster.campaigns.commits": "what git packs",
    "cluster.campaigns.hunt.gate": "sources of the engine",
    "cluster.cli.gate_command": "its own results",
    "cluster.reports.terminal": "the null device",
    "cluster.dispatch.job": "this program's sources",
    "cluster.dispatch.machine": "the kernel's files",
    "cluster.dispatch.runtime_environment": "this program's pyproject.toml",
    "cluster.dispatch.session": "the null device",
    "cluster.dispatch.inside": "opens folders",
    "cluster.dispatch.whole_file": "writes",
    "cluster.reports.fault_page": "the page of faults, which is part of this program",
    "cluster.reports.finding_page": "pages of findings, which are part of this program",
    "cluster.reports.page.render": "this program's templates",
    "cluster.storage.database": "repairs",
    "cluster.storage.lock": "locks",
    "scenarios.input_file": "the function itself",
}


def test_every_input_is_read_by_one_function() -> None:
    opening = {"open", "read_text", "read_bytes", "fdopen"}
    found = set()
    for room in ("cluster", "scenarios"):
        for path in (ROOT / room).rglob("*.py"):
            calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
            if names & opening:
                found.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert found == OWN_FILES.keys()
