"""Process of an engine, seen from the process that judges: started, asked, and ended when it does not answer as asked.

One of a configuration is kept, and started again after it has ended.

Verifies: that each question gets one answer, whole, of its number and its kind, within a time; that nothing else is
said. Whatever is wrong is an `EngineFailed`, or a `StartFailed` before the greeting, and ends the process: it is not
asked again. With the process all of its descendants end (`warden.py`), also where the judging process is killed. It has
a session of its own: signals of a terminal do not reach it.
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
# A warden ends all that it keeps, and itself, within fewer.
_END_SECONDS = 10.0
# The place of a failure that the process died of without a message.
ITS_PROCESS = Site(function="its process")
_READ_BYTES = 1 << 16
# What handlers of signals raise.
INTERRUPTS = KeyboardInterrupt, SystemExit

A = TypeVar("A", bound=Value)


class EngineRaised(EngineFailed):
    """An exception in the engine's process, which has told of it; `seen` is what it had observed by then."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error, failed.where, failed.callers)
        self.seen = failed.seen


class StartFailed(Exception):
    """An engine's process that could not begin; the message says why."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How a process is started: what is run, what is added to the environment, and in which folder."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True)
class Seconds:
    """How long a process is waited for: until it greets, for an answer, and to end once it has closed a stream.

    Imports take seconds, and minutes where many share a machine.
    """

    start: float = 300.0
    answer: float = 120.0
    end: float = 10.0


SECONDS = Seconds()


class _Deadline:
    """The end of a span of seconds that begins now."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds left, zero or negative once it is over."""
        return self._end - time.monotonic()


class EngineProcess:
    """One child; `greeting` is its first answer."""

    def __init__(self, launch: Launch, seconds: Seconds = SECONDS) -> None:
        self._seconds = seconds
        self._number = GREETING
        self._unread = bytearray()
        self._is_ended = False
        _remove_orphans(Path(tempfile.gettempdir()))
        with ExitStack() as opened:
            try:
                # The end of what its libraries print is kept for the case that it cannot begin.
                self._printed = opened.enter_context(tempfile.TemporaryFile())
                # An engine leaves files in it; its warden removes them if this process is killed.
                files = opened.enter_context(
                    tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True)
                )
                # It runs without this program's packages: nothing of the engine's environment changes what it does.
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
                # It can be read once the process has ended.
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
            # Its own message is better than its libraries' last line.
            raise StartFailed(f"{error}: {why}" if error.where == ITS_PROCESS else str(error)) from error
        except INTERRUPTS:
            self.kill()
            raise

    def ask(self, question: Message, kind: type[A]) -> A:
        """Return the answer to a question, checked to be of a kind.

        A signal that ends the wait for it ends the process as well: the next question would get this one's answer.

        Raises:
            EngineFailed: the engine raised, its process died, or it did not answer as asked.
        """
        if self._is_ended:
            raise EngineFailed("the engine's process was ended before it was asked", ITS_PROCESS)
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
        """End the process because of a wrong answer; return the failure."""
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
                raise self.refuse(f"said a line longer than {LINE_BYTES_MAX} bytes")
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
        """Check that nothing was said since the last answer."""
        said = self._read()
        if said:
            raise self.refuse(f"said {said[:80]!r} unasked")

    def _read(self) -> bytes:
        """Return what can be read now, perhaps nothing."""
        try:
            part = os.read(self._answers.fileno(), _READ_BYTES)
        except BlockingIOError:
            return b""
        if not part:
            raise self._gone("output")
        return part

    def _wait(self, pipe: IO[bytes], event: int, deadline: _Deadline) -> None:
        """Wait until a pipe can be used, or its other end is closed; another process may hold that open.

        Raises:
            EngineFailed: the process has ended, or the time is over.
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
        """End it, and wait until it has: before, it would still be taken for one that can be asked."""
        self._is_ended = True
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            # Its warden is stopped.
            self._process.kill()
            self._process.wait()

    def _gone(self, stream: str) -> EngineFailed:
        """Describe the end of a process that has closed a stream: most have died."""
        try:
            code = self._process.wait(self._seconds.end)
        except subprocess.TimeoutExpired:
            return self.refuse(f"closed its {stream} and lived on")
        how = f"of {_signal_name(-code)}" if code < 0 else f"with exit code {code}"
        return EngineFailed(f"the engine's process died {how}", ITS_PROCESS)

    def _last_line(self) -> str:
        self._printed.seek(max(0, self._printed.seek(0, os.SEEK_END) - 4096))
        lines = self._printed.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


class Keeper:
    """One process of an engine at most.

    `launch` says how it is started, or raises a DeviceError that says why it cannot be.
    """

    def __init__(self, engine: str, launch: Callable[[], Launch], seconds: Seconds = SECONDS) -> None:
        self._engine, self.launch, self._seconds = engine, launch, seconds
        self._process: EngineProcess | None = None

    def process(self) -> EngineProcess:
        """Return a live process, started if there is none.

        Raises:
            DeviceError: none can be started; the message says what to do.
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
        """The process that is kept, if there is one."""
        return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()


def _signal_name(number: int) -> str:
    """Return the name of a signal; those of real time have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _remove_orphans(temporary: Path) -> None:
    """Remove the folders of processes that were killed together with their engine's, as Ray's workers are."""
    for folder in temporary.glob(f"{_FOLDER}*-*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
