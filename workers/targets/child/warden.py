"""Program that runs a command and, when it ends, kills all of the command's descendants.

`warden.py DRIVER FOLDER COMMAND...` writes the command's process id to stdout as the first line and, after the command
has ended, the end of its error output to stderr. It exits like the command: with its exit code, or by its signal.

Verifies: when the command ends, when process DRIVER ends, or on SIGTERM, every descendant gets SIGTERM, and SIGKILL a
second later. Orphaned descendants are adopted (PR_SET_CHILD_SUBREAPER), including daemons with a session of their own.
There are two wardens, an outer one that is the parent of the inner one: if one is killed, the other does its work.
FOLDER is removed if the driver has ended.

Does not verify: that a descendant ends that kills both wardens, or that runs as another user.
"""

import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

# Time that descendants have to end after SIGTERM, after SIGKILL, and in the outer warden, which waits for the inner.
TERM_SECONDS = 1.0
KILL_SECONDS = 3.0
OUTER_SECONDS = 5.0
CANNOT_START = 127
_PAUSE_SECONDS = 0.05
_TAIL_BYTES = 4096
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Warden:
    """Parent of an engine's process that kills all descendants when the process ends."""

    def __init__(self, driver: int, parent: int) -> None:
        self._is_asked = False
        self._output = bytearray()
        # Each signal writes a byte into this pipe, which ends the poll.
        wakes, writer = os.pipe()
        for end in (wakes, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._ask)
        self._wakes = wakes
        self._poll = select.poll()
        self._poll.register(wakes, select.POLLIN)
        self._watched = [_watch(driver), *([_watch(parent)] if parent != driver else [])]
        # Whether the driver or the outer warden has ended.
        self.is_alone = None in self._watched or os.getppid() != parent
        for each in self._watched:
            if each is not None:
                self._poll.register(each, select.POLLIN)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def keep(self, begin: Callable[[], None], term_seconds: float, errors: int | None = None) -> int:
        """Run `begin` in a child process; afterwards end all descendants.

        The child must end on SIGTERM, or if the driver or the other warden has ended. Return the child's wait status.
        Data from the pipe `errors` is read, and its end written to stderr.
        """
        child = os.fork()
        if not child:
            begin()
            os._exit(CANNOT_START)
        # Only the command uses the pipes of the protocol.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (_STDIN, _STDOUT):
            os.dup2(nowhere, stream)
        if errors is not None:
            self._poll.register(errors, select.POLLIN)
        ended: dict[int, int] = {}
        while child not in ended and not (self._is_asked or self.is_alone):
            self._wait(None, errors)
            ended |= _reap()
        ended |= self._end(signal.SIGTERM, TERM_SECONDS if child in ended else term_seconds, errors)
        ended |= self._end(signal.SIGKILL, KILL_SECONDS, errors)
        if errors is not None:
            self._wait(0, errors)
            os.write(_STDERR, self._output[-_TAIL_BYTES:])
        return ended.get(child, signal.SIGKILL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True

    def _wait(self, seconds: float | None, errors: int | None) -> None:
        """Wait for a signal, for the end of a watched process, or for error output."""
        for descriptor, _ in self._poll.poll(None if seconds is None else 1000 * seconds):
            if descriptor == self._wakes:
                os.read(self._wakes, _TAIL_BYTES)
            elif descriptor == errors:
                written = os.read(errors, 1 << 16)
                self._output = (self._output + written)[-_TAIL_BYTES:]
                if not written:
                    self._poll.unregister(errors)
            else:
                self.is_alone = True
                self._poll.unregister(descriptor)

    def _end(self, number: signal.Signals, seconds: float, errors: int | None) -> dict[int, int]:
        """Send a signal to all descendants until none is left or `seconds` have passed.

        Return the wait statuses of the children that have ended.
        """
        ended = _reap()
        until = time.monotonic() + seconds
        is_sent = False
        while _has_children() and time.monotonic() < until:
            # Each descendant that ends may leave children to adopt. SIGTERM is sent once: handlers should run once.
            if number == signal.SIGKILL or not is_sent:
                _send(number)
                is_sent = True
            self._wait(_PAUSE_SECONDS, errors)
            ended |= _reap()
        return ended


def _watch(process: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; None if it has ended."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return None


def _reap() -> dict[int, int]:
    """Return the exit statuses of ended children by process id, so that none stays a zombie."""
    ended: dict[int, int] = {}
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            ended[found[0]] = found[1]
    return ended


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants() -> list[int]:
    """Return the descendants of this process."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The program's name comes before, in parentheses, and may contain parentheses.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def _send(number: signal.Signals) -> None:
    """Send a signal to all descendants, first by process group so that no fork can escape it."""
    descendants = _descendants()
    groups = set()
    for each in descendants:
        with suppress(OSError):
            groups.add(os.getpgid(each))
    for group in groups - {os.getpgrp()}:
        with suppress(OSError):
            os.killpg(group, number)
    for each in descendants:
        with suppress(OSError):
            os.kill(each, number)
        with suppress(OSError):
            # A stopped process handles a signal only once it continues.
            os.kill(each, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _run(command: list[str], errors: int, warden: int) -> None:
    """Replace this process by the command (`exec`)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:
        return
    os.setsid()
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these signals, which the command would inherit.
        signal.signal(each, signal.SIG_DFL)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # If memory runs out, the kernel kills this process first, not the driver.
        file.write("1000")
    os.write(_STDOUT, b"%d\n" % os.getpid())
    os.dup2(errors, _STDERR)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        failed = {"error": f"{command[0]} cannot be started: {error}", "where": {"function": "exec"}}
        os.write(_STDOUT, json.dumps({"number": 0, **failed}).encode() + b"\n")


def _keep_command(driver: int, parent: int, command: list[str]) -> int:
    inner = Warden(driver, parent)
    errors, writer = os.pipe()
    warden = os.getpid()
    return inner.keep(lambda: _run(command, writer, warden), TERM_SECONDS, errors)


def _exit_like(status: int) -> None:
    """Exit with the exit code, or by the signal, of a child's wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def main() -> None:
    """Run two nested wardens: the outer one guards the inner one, which runs the engine."""
    driver, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    outer = Warden(driver, driver)
    parent = os.getpid()
    status = outer.keep(lambda: _exit_like(_keep_command(driver, parent, command)), OUTER_SECONDS)
    if outer.is_alone:
        shutil.rmtree(folder, ignore_errors=True)
    _exit_like(status)


if __name__ == "__main__":
    main()
