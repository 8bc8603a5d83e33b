"""An engine's child process as its parent sees it: start it, ask questions, end it.

A `Keeper` keeps one process for each configuration, and starts a new one after it has ended.

Verifies, for each question:
- it gets exactly one answer, complete, with its number, of the expected type, within a time limit;
- the process writes nothing else.

Any violation is an `EngineFailed`, or a `StartFailed` before the greeting, and ends the process. All descendants of the
process end with it (`warden.py`), even if the judging process is killed. The process has a session of its own, so a
terminal's signals do not reach it.
"""

import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from scenarios.spec import Value
from workers.record.evidence import Site
from workers.targets.child.answers import Failed, Greeting, answer_in
from workers.targets.child.messages import GREETING, LINE_BYTES_MAX, Message, MessageError, line_of
from workers.targets.target import DeviceError, EngineFailed

_FOLDER = "specstorm-engine-"
_WARDEN = Path(__file__).with_name("warden.py")
# A warden ends all descendants and itself in less time.
_END_SECONDS = 10.0
# Source location of a failure if the process died without a message.
ITS_PROCESS = Site(function="its process")
_READ_BYTES = 1 << 16
# Exceptions that signal handlers raise.
INTERRUPTS = KeyboardInterrupt, SystemExit

A = TypeVar("A", bound=Value)


class EngineRaised(EngineFailed):
    """The engine raised an exception; `seen` has the engine records of its last step."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error, failed.where, failed.callers)
        self.seen = failed.seen


class StartFailed(Exception):
    """An engine's process could not start; the message says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Command line, additional environment variables and working directory of a process."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time limits in seconds: for the greeting, an answer, and the exit after the pipe closes.

    Imports take seconds, or minutes if many processes share a machine.
    """

    start: float = 300.0
    answer: float = 120.0
    end: float = 10.0


SECONDS = Seconds()


class _Deadline:
    """Point in time, `seconds` after its creation."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until the deadline; zero or negative after it."""
        return self._end - time.monotonic()


class EngineProcess:
    """One child process of an engine; `greeting` is the first message that it sent."""

    def __init__(self, launch: Launch, seconds: Seconds = SECONDS) -> None:
        self._seconds = seconds
        self._number = GREETING
        self._unread = bytearray()
        self._is_ended = False
        _remove_orphans(Path(tempfile.gettempdir()))
        with ExitStack() as opened:
            try:
                # If the process cannot start, the last line that its libraries printed is part of the message.
                self._printed = opened.enter_context(tempfile.TemporaryFile())
                # The engine's temporary files; its warden removes the folder if this process is killed.
                files = opened.enter_context(
                    tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True)
                )
                # The warden imports no installed packages: the engine's environment cannot change its behaviour.
                warden = (sys.executable, "-I", "-S", str(_WARDEN), str(os.getpid()), files)
                self._process = subprocess.Popen(
                    (*warden, *launch.command),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._printed,
                    env={**os.environ, **launch.environment, "TMPDIR": files},
                    cwd=launch.folder,
                    start_new_session=True,
                )
                # This descriptor becomes readable when the process has ended.
                self._ended = os.pidfd_open(self._process.pid)
                opened.callback(os.close, self._ended)
            except OSError as error:
                raise StartFailed(f"{launch.command[0]} cannot be started: {error}") from error
            self._files = opened.pop_all()
        assert self._process.stdin is not None, "it has a pipe"
        assert self._process.stdout is not None, "it has a pipe"
        self._questions, self._answers = self._process.stdin, self._process.stdout
        for pipe in (self._questions, self._answers):
            os.set_blocking(pipe.fileno(), False)
        deadline = _Deadline(seconds.start)
        try:
            self.pid = int(self._line(deadline))
            self.greeting = self._answer(Greeting, deadline, "its start")
        except EngineFailed as error:
            self._end()
            why = self._last_line()
            self.kill()
            # A message of the process itself is better than the last line that its libraries printed.
            raise StartFailed(f"{error}: {why}" if error.where == ITS_PROCESS else str(error)) from error
        except INTERRUPTS:
            self.kill()
            raise

    def ask(self, question: Message, kind: type[A]) -> A:
        """Send a question and return its answer, checked to be of type `kind`.

        A signal that interrupts the wait ends the process as well: otherwise the next question would get this one's
        answer.

        Raises:
            EngineFailed: the engine raised, its process died, or the answer was wrong or late.
        """
        if self._is_ended:
            raise EngineFailed("the engine's process has already ended", ITS_PROCESS)
        deadline = _Deadline(self._seconds.answer)
        self._number += 1
        self._check_silent()
        try:
            self._write(line_of({"number": self._number, **question}), deadline)
            return self._answer(kind, deadline, question["do"])
        except INTERRUPTS:
            self._end()
            raise

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def refuse(self, why: str) -> EngineFailed:
        """End the process after a malformed message; return the exception to raise."""
        self._end()
        return EngineFailed(f"the engine's process {why}", ITS_PROCESS)

    def kill(self) -> None:
        self._end()
        self._files.close()
        for pipe in (self._questions, self._answers):
            try:
                pipe.close()
            except OSError:
                continue

    def _answer(self, kind: type[A], deadline: _Deadline, question: str) -> A:
        line = self._line(deadline)
        if self._unread:
            raise self.refuse(f"answered {question} with more than one line")
        try:
            answer = answer_in(line, self._number, kind)
        except MessageError as error:
            raise self.refuse(f"answered {question} with {error}") from error
        if isinstance(answer, Failed):
            if answer.is_last:
                self._end()
            raise EngineRaised(answer)
        return answer

    def _line(self, deadline: _Deadline) -> bytes:
        num_searched = 0
        while (end := self._unread.find(b"\n", num_searched)) < 0:
            num_searched = len(self._unread)
            if num_searched >= LINE_BYTES_MAX:
                raise self.refuse(f"wrote a line longer than {LINE_BYTES_MAX} bytes")
            self._wait(self._answers, select.POLLIN, deadline)
            self._unread += self._read()
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line

    def _write(self, line: bytes, deadline: _Deadline) -> None:
        rest = memoryview(line)
        while rest:
            self._wait(self._questions, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._questions.fileno(), rest) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self._gone("input") from error

    def _check_silent(self) -> None:
        """Raise if the process wrote to the pipe although no question is open."""
        unexpected = self._read()
        if unexpected:
            raise self.refuse(f"wrote {unexpected[:80]!r} without a question")

    def _read(self) -> bytes:
        """Return the bytes that the process has written since the last read; may be empty."""
        try:
            part = os.read(self._answers.fileno(), _READ_BYTES)
        except BlockingIOError:
            return b""
        if not part:
            raise self._gone("output")
        return part

    def _wait(self, pipe: IO[bytes], event: int, deadline: _Deadline) -> None:
        """Wait until a pipe is ready, or the process has ended.

        Raises:
            EngineFailed: the process has ended, or the deadline has passed.
        """
        left = deadline.left()
        poll = select.poll()
        poll.register(pipe, event)
        poll.register(self._ended, select.POLLIN)
        ready = poll.poll(math.ceil(1000 * left)) if left > 0 else []
        if not ready:
            raise self.refuse(f"gave no answer in {deadline.seconds:g} s")
        if all(descriptor == self._ended for descriptor, _ in ready):
            raise self._gone("output")

    def _end(self) -> None:
        """End the process and wait for its exit, so that `is_alive` is False afterwards."""
        self._is_ended = True
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # The warden was stopped (SIGSTOP) and does not react to SIGTERM.
            self._process.kill()
            self._process.wait()

    def _gone(self, stream: str) -> EngineFailed:
        """Return the exception for a process that closed its pipe, usually because it died."""
        try:
            code = self._process.wait(self._seconds.end)
        except subprocess.TimeoutExpired:
            return self.refuse(f"closed its {stream} but did not end")
        how = f"of {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return EngineFailed(f"the engine's process died {how}", ITS_PROCESS)

    def _last_line(self) -> str:
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - 4096))
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"


class Keeper:
    """Starts an engine's child process when it is first needed; keeps at most one.

    `launch` returns how it is started, or raises a DeviceError that says why it cannot be.
    """

    def __init__(self, engine: str, launch: Callable[[], Launch], seconds: Seconds = SECONDS) -> None:
        self._engine, self.launch, self._seconds = engine, launch, seconds
        self._process: EngineProcess | None = None

    def process(self) -> EngineProcess:
        """Return the running process; start it if necessary.

        Raises:
            DeviceError: the process cannot be started; the message says what to do.
        """
        if self._process is not None and self._process.is_alive():
            return self._process
        self.stop()
        launch = self.launch()
        try:
            self._process = EngineProcess(launch, self._seconds)
        except StartFailed as error:
            raise DeviceError(f"engine {self._engine}: {error}") from error
        return self._process

    @property
    def pid(self) -> int | None:
        """Process id of the kept process, or None."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _signal_name(number: int) -> str:
    """Return the name of a signal, or its number as text for a real-time signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _remove_orphans(temporary: Path) -> None:
    """Remove temporary folders left by engines whose parent process died with them.

    Ray, for example, kills its workers together with their child processes.
    """
    for folder in temporary.glob(f"{_FOLDER}*-*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
