"""Warden: a program that runs a command, and ends it together with all of its descendants.

`warden.py DRIVER FOLDER COMMAND...` writes the process id of the command to stdout as the first line, and when the
command has ended its last output on stderr. It ends as the command ended: with its exit code, or of its signal.

Verifies: when the command ends, when process DRIVER ends, or on SIGTERM, every descendant gets SIGTERM, and SIGKILL a
second later. Descendants whose parents have ended are adopted (PR_SET_CHILD_SUBREAPER), so a daemon with a session of
its own is one of them. There are two wardens, one the parent of the other: if one is killed, the other does its work.
FOLDER is removed if the driver has ended.
Does not verify: that a descendant ends that kills both wardens, or runs as another user.
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

# How long descendants have to end after SIGTERM, and after SIGKILL; the outer warden waits for the inner one.
TERM_SECONDS = 1.0
KILL_SECONDS = 3.0
OUTER_SECONDS = 5.0
CANNOT_START = 127
_PAUSE_SECONDS = 0.05
_TAIL_BYTES = 4096
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_STDIN, _STDOUT, _STDERR = 0, 1, 2


class Warden:
    """Parent of one process: waits for its end, and ends all descendants."""

    def __init__(self, driver: int, parent: int) -> None:
        self._is_asked = False
        self._output = bytearray()
        # Signals wake the poll.
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
        # Whether the driver or the warden above has ended.
        self.is_alone = None in self._watched or os.getppid() != parent
        for each in self._watched:
            if each is not None:
                self._poll.register(each, select.POLLIN)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def keep(self, begin: Callable[[], None], term_seconds: float, errors: int | None = None) -> int:
        """Run `begin` in a child until it ends or is to end; end all descendants and return the child's wait status.

        What is written to the pipe `errors` is read, and its end written to stderr.
        """
        child = os.fork()
        if not child:
            begin()
            os._exit(CANNOT_START)
        # The pipes of the protocol belong to the command.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (_STDIN, _STDOUT):
            os.dup2(nowhere, stream)
        if errors is not None:
            self._poll.register(errors, select.POLLIN)
        ended: dict[int, int] = {}
        while child not in ended and not (self._is_asked or self.is_alone):
            self._wait(None, errors)
            ended |= _reaped()
        ended |= self._end(signal.SIGTERM, TERM_SECONDS if child in ended else term_seconds, errors)
        ended |= self._end(signal.SIGKILL, KILL_SECONDS, errors)
        if errors is not None:
            self._wait(0, errors)
            os.write(_STDERR, self._output[-_TAIL_BYTES:])
        return ended.get(child, signal.SIGKILL)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._is_asked = True

    def _wait(self, seconds: float | None, errors: int | None) -> None:
        """Wait for a signal, the end of a process that is watched, or output."""
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
        """Send a signal to all descendants until none is left, for so long; return how children ended."""
        ended = _reaped()
        until = time.monotonic() + seconds
        is_sent = False
        while _has_children() and time.monotonic() < until:
            # Each descendant that ends may leave children to adopt; a handler of SIGTERM runs once.
            if number == signal.SIGKILL or not is_sent:
                _send(number)
                is_sent = True
            self._wait(_PAUSE_SECONDS, errors)
            ended |= _reaped()
        return ended


def _watch(process: int) -> int | None:
    """Return a descriptor that can be read once a process has ended, None if it has."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return None


def _reaped() -> dict[int, int]:
    """Return the wait statuses of the children that have ended, by process."""
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
                # The name of the program comes before, in parentheses, and may have some itself.
                parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    found = [os.getpid()]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def _send(number: signal.Signals) -> None:
    """Send a signal to all descendants, by group first: no fork within a group escapes that."""
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
            # One that is stopped takes a signal once it continues.
            os.kill(each, signal.SIGCONT)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _run(command: list[str], errors: int, warden: int) -> None:
    """Become the command."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != warden:
        return
    os.setsid()
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these, and a command inherits that.
        signal.signal(each, signal.SIG_DFL)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # Where memory ends, it ends and not the driver.
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


def _end_as(status: int) -> None:
    """Exit with the exit code or signal of a child's wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def main() -> None:
    """Keep a warden that keeps the command."""
    driver, folder, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    outer = Warden(driver, driver)
    parent = os.getpid()
    status = outer.keep(lambda: _end_as(_keep_command(driver, parent, command)), OUTER_SECONDS)
    if outer.is_alone:
        shutil.rmtree(folder, ignore_errors=True)
    _end_as(status)


if __name__ == "__main__":
    main()
