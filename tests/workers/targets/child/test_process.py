"""An engine's process: messages have a maximum length, and every way to end is reported."""

import io
import os
import select
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from scenarios.spec import Value
from workers.targets.child import messages
from workers.targets.child.answers import Nothing
from workers.targets.child.messages import MessageError, line_of, read_message
from workers.targets.child.process import SECONDS, EngineProcess, Launch, Seconds, StartFailed
from workers.targets.target import EngineFailed

ECHO = """
import json, os, signal, sys, tempfile
say = lambda number, answer: print(json.dumps({"number": number, "answer": answer}), flush=True)
say(0, {"version": "1"})
for line in sys.stdin:
    question = json.loads(line)
    number = question["number"]
    match question["do"]:
        case "echo": say(number, {"text": line.strip()})
        case "die": os.kill(os.getpid(), signal.SIGSEGV)
        case "litter": say(number, {"text": tempfile.mkstemp()[1]})
        case "be deaf": say(number, {}); signal.pause()
        case "be interrupted": os.kill(int(os.environ["DRIVER"]), signal.SIGINT)
        case "babble on a signal":
            signal.signal(signal.SIGUSR1, lambda *_: print("more", flush=True))
            say(number, {})
"""


class Text(Value):
    """An answer that contains a text."""

    text: str


def started(script: str, seconds: Seconds = SECONDS) -> EngineProcess:
    return EngineProcess(Launch((sys.executable, "-c", script), {"DRIVER": str(os.getpid())}, Path.cwd()), seconds)


@pytest.mark.parametrize("line", [b"[1]\n", b"{\n", b"\xff\n", b'{"cut": "of', b""])
def test_invalid_line_is_refused_and_end_of_stream_is_none(line: bytes) -> None:
    if not line:
        assert read_message(io.BytesIO(line)) is None
        return
    with pytest.raises(MessageError):
        read_message(io.BytesIO(line))


def test_too_long_message_is_refused_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LINE_BYTES_MAX", 20)
    assert read_message(io.BytesIO(line_of({"a": 1}))) == {"a": 1}
    with pytest.raises(MessageError, match="at most 20"):
        line_of({"a": "b" * 20})
    with pytest.raises(MessageError, match="longer than 20"):
        read_message(io.BytesIO(b'{"a": "bbbbbbbbbbbbbbbbbbbbb"}\n'))


def test_questions_are_numbered_after_the_greeting() -> None:
    child = started(ECHO)
    assert child.greeting.version == "1"
    assert child.ask({"do": "echo", "n": 7}, Text).text == '{"number":1,"do":"echo","n":7}'
    assert child.ask({"do": "echo"}, Text).text == '{"number":2,"do":"echo"}'
    assert child.is_alive()
    child.kill()
    assert not child.is_alive()
    with pytest.raises(EngineFailed, match="has already ended"):
        child.ask({"do": "echo"}, Text)


def test_question_longer_than_a_pipe_is_answered() -> None:
    child, text = started(ECHO), "b" * (1 << 20)
    assert text in child.ask({"do": "echo", "a": text}, Text).text
    child.kill()


def test_process_that_does_not_read_a_long_question_is_ended() -> None:
    child = started(ECHO)
    child.ask({"do": "be deaf"}, Nothing)
    child._seconds = Seconds(answer=1.0)
    with pytest.raises(EngineFailed, match="gave no answer in 1 s"):
        child.ask({"do": "echo", "a": "b" * (1 << 20)}, Text)
    assert not child.is_alive()
    child.kill()


def test_interrupt_while_waiting_for_an_answer_ends_the_process() -> None:
    child = started(ECHO)
    with pytest.raises(KeyboardInterrupt):
        child.ask({"do": "be interrupted"}, Nothing)
    assert not child.is_alive()
    child.kill()


def test_output_without_a_question_ends_the_process() -> None:
    child = started(ECHO)
    child.ask({"do": "babble on a signal"}, Nothing)
    os.kill(child.pid, signal.SIGUSR1)
    select.select([child._answers], [], [])
    with pytest.raises(EngineFailed, match="wrote b'more"):
        child.ask({"do": "echo"}, Text)
    with pytest.raises(EngineFailed, match="has already ended"):
        child.ask({"do": "echo"}, Text)
    child.kill()


@pytest.mark.parametrize("ends", [False, True])
def test_temporary_folder_is_removed_with_the_process(ends: bool) -> None:
    child = started(ECHO)
    file = Path(child.ask({"do": "litter"}, Text).text)
    assert file.exists()
    if ends:
        with pytest.raises(EngineFailed, match="SIGSEGV"):
            child.ask({"do": "die"}, Nothing)
    child.kill()
    assert not file.parent.exists()


def test_folder_of_a_killed_driver_is_removed_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # No process id is as large as this.
    gone, lives = tmp_path / "specstorm-engine-99999999-a", tmp_path / f"specstorm-engine-{os.getpid()}-a"
    for folder in (gone, lives):
        folder.mkdir()
        (folder / "file").touch()
    started(ECHO).kill()
    assert [path.name for path in tmp_path.iterdir()] == [lives.name]


def test_process_that_cannot_start_reports_the_error() -> None:
    with pytest.raises(StartFailed, match="died with exit code 1: ImportError: no engine here"):
        started("raise ImportError('no engine here')")
