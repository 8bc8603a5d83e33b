"""An engine's own process: what it says is read within bounds, and whatever becomes of it is told."""

import io
import os
import sys
import tempfile
from pathlib import Path

import pytest

from workers.targets.child import messages, process
from workers.targets.child.messages import MessageError, read_message, write_message
from workers.targets.child.process import EngineProcess, StartFailed
from workers.targets.target import EngineFailed

ECHO = """
import json, os, signal, sys, tempfile, time
say = lambda message: print(json.dumps(message), flush=True)
say({"vllm": "0"})
for line in sys.stdin:
    match json.loads(line)["do"]:
        case "echo": say({"echo": line.strip()})
        case "raise": say({"error": "IndexError: 7", "where": "step in core.py:1"})
        case "die": os.kill(os.getpid(), signal.SIGSEGV)
        case "leave": sys.exit(3)
        case "litter": say({"file": tempfile.mkstemp()[1]})
        case "sleep": time.sleep(60)
        case "babble": print("no JSON", flush=True)
"""


def started(script: str) -> EngineProcess:
    return EngineProcess([sys.executable, "-c", script], {}, Path.cwd())


@pytest.mark.parametrize("line", [b"[1]\n", b"{\n", b"\xff\n", b'{"cut": "of', b""])
def test_what_is_no_message_is_refused_and_the_end_is_the_end(line: bytes) -> None:
    if not line:
        assert read_message(io.BytesIO(line)) is None
        return
    with pytest.raises(MessageError):
        read_message(io.BytesIO(line))


def test_messages_are_bounded_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LINE_BYTES_MAX", 20)
    stream = io.BytesIO()
    write_message(stream, {"a": 1})
    assert read_message(io.BytesIO(stream.getvalue())) == {"a": 1}
    with pytest.raises(MessageError, match="at most 20"):
        write_message(stream, {"a": "b" * 20})
    with pytest.raises(MessageError, match="longer than 20"):
        read_message(io.BytesIO(b'{"a": "bbbbbbbbbbbbbbbbbbbbb"}\n'))


def test_a_process_is_greeted_and_asked() -> None:
    child = started(ECHO)
    assert child.greeting == {"vllm": "0"}
    assert child.ask({"do": "echo", "n": 1}) == {"echo": '{"do":"echo","n":1}'}
    assert child.is_alive()
    child.kill()
    assert not child.is_alive()


@pytest.mark.parametrize(
    ("what", "message", "where"),
    [
        ("raise", "IndexError: 7", "step in core.py:1"),
        ("die", "the engine's process died of SIGSEGV", "its process"),
        ("leave", "the engine's process died with exit code 3", "its process"),
        ("sleep", "the engine's process gave no answer in 1 s", "its process"),
    ],
)
def test_whatever_becomes_of_a_process_is_told(what: str, message: str, where: str) -> None:
    child = started(ECHO)
    with pytest.raises(EngineFailed) as error:
        child.ask({"do": what}, seconds=1 if what == "sleep" else process.ANSWER_SECONDS)
    assert (str(error.value), error.value.where) == (message, where)
    child.kill()


def test_an_answer_that_is_none_ends_the_process() -> None:
    child = started(ECHO)
    with pytest.raises(EngineFailed, match="a line that is no JSON"):
        child.ask({"do": "babble"})
    with pytest.raises(EngineFailed, match="died of SIGKILL"):
        child.ask({"do": "echo"})
    child.kill()


@pytest.mark.parametrize("ends", [False, True])
def test_what_a_process_leaves_in_its_temporary_folder_is_removed_with_it(ends: bool) -> None:
    child = started(ECHO)
    file = Path(child.ask({"do": "litter"})["file"])
    assert file.exists()
    if ends:
        with pytest.raises(EngineFailed, match="SIGSEGV"):
            child.ask({"do": "die"})
    child.kill()
    assert not file.parent.exists()


def test_the_folder_of_a_process_that_is_gone_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # No process has a number as large.
    gone, lives = tmp_path / "specstorm-engine-99999999-a", tmp_path / f"specstorm-engine-{os.getpid()}-a"
    for folder in (gone, lives):
        folder.mkdir()
        (folder / "file").touch()
    started(ECHO).kill()
    assert [path.name for path in tmp_path.iterdir()] == [lives.name]


def test_a_process_that_cannot_begin_says_why() -> None:
    with pytest.raises(StartFailed, match="died with exit code 1: ImportError: no vllm here"):
        started("raise ImportError('no vllm here')")


def test_a_process_that_gave_no_answer_is_not_asked_again() -> None:
    child = started(ECHO)
    with pytest.raises(EngineFailed, match="gave no answer"):
        child.ask({"do": "sleep"}, seconds=0.01)
    assert not child.is_alive()
    child.kill()
