"""Process of an engine, seen from the process that judges: started, asked, and killed when it gives no answer."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from select import select

from workers.targets.child.messages import Message, MessageError, read_message, write_message
from workers.targets.target import EngineFailed

# Imports take seconds, and minutes where many share a machine.
START_SECONDS = 300.0
ANSWER_SECONDS = 120.0
# Tells a child the temporary folder that is its own.
FILES = "SPECSTORM_ENGINE_FILES"
_FOLDER = "specstorm-engine-"
# Where something went wrong that the process did not live to tell.
_ITS_PROCESS = "its process"


class StartFailed(Exception):
    """An engine's process that could not begin; the message says why."""


class EngineProcess:
    """One child; `greeting` is what it said of itself."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        # What its libraries print is kept for the case that it cannot begin.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  it is closed with the process
        # An engine leaves files behind; the child removes them once we have died.
        _remove_orphans(Path(tempfile.gettempdir()))
        self._files = tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={**os.environ, **environment, "TMPDIR": self._files.name, FILES: self._files.name},
            cwd=folder,
        )
        try:
            self.greeting = self._answer(START_SECONDS)
        except EngineFailed as error:
            why = self._last_line()
            self.kill()
            # What it said itself is said better than by its libraries.
            raise StartFailed(f"{error}: {why}" if error.where == _ITS_PROCESS else str(error)) from error

    def ask(self, message: Message, seconds: float = ANSWER_SECONDS) -> Message:
        """Return the answer to a message.

        Raises:
            EngineFailed: the engine raised, its process died, or it gave no answer in time.
        """
        assert self._process.stdin is not None, "it has a pipe"
        try:
            write_message(self._process.stdin, message)
        except OSError as error:
            raise self._dead() from error
        return self._answer(seconds)

    @property
    def pid(self) -> int:
        """Return the id by which the system knows it."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether it can be asked."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once."""
        self._end()
        self._files.cleanup()
        for stream in (self._process.stdin, self._process.stdout, self._said):
            assert stream is not None, "it has pipes"
            try:
                stream.close()
            except OSError:
                continue

    def _answer(self, seconds: float) -> Message:
        stream = self._process.stdout
        assert stream is not None, "it has a pipe"
        ready, _, _ = select([stream], [], [], seconds)
        if not ready:
            self._end()
            raise EngineFailed(f"the engine's process gave no answer in {seconds:g} s", _ITS_PROCESS)
        try:
            answer = read_message(stream)
        except MessageError as error:
            self._end()
            raise EngineFailed(f"the engine's process answered with {error}", _ITS_PROCESS) from error
        if answer is None:
            raise self._dead()
        if "error" in answer:
            raise EngineFailed(str(answer["error"]), str(answer.get("where", "")))
        return answer

    def _end(self) -> None:
        """End it, and wait until it has: before, it would still be taken for one that can be asked."""
        self._process.kill()
        self._process.wait()

    def _dead(self) -> EngineFailed:
        code = self._process.wait()
        how = f"of {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return EngineFailed(f"the engine's process died {how}", _ITS_PROCESS)

    def _last_line(self) -> str:
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _remove_orphans(temporary: Path) -> None:
    """Remove the folders of processes that were killed together with their engine's, as Ray's workers are."""
    for folder in temporary.glob(f"{_FOLDER}*-*"):
        owner = folder.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)
