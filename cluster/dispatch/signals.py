"""Signals that stop a command, received even if a handler or a thread blocks.

Verifies: a process that has received a second SIGINT or SIGTERM ends within five seconds. If native code holds the
interpreter lock meanwhile, as Ray's shutdown does for seconds, the system's timer ends the process with SIGALRM.
Does not verify: that a process ends in which no Python code has run since the second signal.
"""

import os
import select
import signal
import threading
import time
from contextlib import suppress
from functools import cache
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds that a command may take to end after a second signal, and the polling interval for signals.
LAST_SECONDS = 3.0
_ALARM_SECONDS = 3.5
_LOOK_SECONDS = 0.2
_STDERR = 2
ENDED = b"\nspecstorm: ended at once by a second signal; results recorded before are kept\n"


class SignalWatch:
    """Records the SIGINT and SIGTERM signals that this process receives.

    It reads the pipe that Python's own signal handler writes to.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        # A handler may run while its own thread has the lock.
        self._lock = threading.RLock()
        self._seen: list[int] = []

    def listen(self) -> None:
        """Receive signals from now on, in place of any earlier signal handler."""
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def seen(self) -> tuple[int, ...]:
        """Return the numbers of the stopping signals received so far, oldest first."""
        with self._lock:
            with suppress(BlockingIOError):
                self._seen += [number for number in os.read(self._reader, 4096) if number in SIGNALS]
            assert set(self._seen) <= set(SIGNALS), "other signals stop nothing"
            return tuple(self._seen)

    def end_after_second(self) -> None:
        """Listen; after a second signal, end this process some seconds later."""
        self.listen()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._end_after_second, daemon=True).start()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        """Set the timer that ends a blocked process, then raise KeyboardInterrupt as Python does.

        The handling of the exception may hold the interpreter lock.
        """
        self._set_alarm()
        signal.default_int_handler(signum, frame)

    def _set_alarm(self) -> bool:
        """Set a timer that ends this process after two signals, whatever its threads do.

        Return whether it is set.
        """
        if len(self.seen()) < 2:
            return False
        if not signal.getitimer(signal.ITIMER_REAL)[0]:
            signal.setitimer(signal.ITIMER_REAL, _ALARM_SECONDS)
        return True

    def _end_after_second(self) -> None:
        while not self._set_alarm():
            time.sleep(_LOOK_SECONDS)
        time.sleep(LAST_SECONDS)
        errors = select.poll()
        errors.register(_STDERR, select.POLLOUT)
        # A reader that does not read must not block the end of this process.
        if errors.poll(0):
            os.write(_STDERR, ENDED)
        os._exit(128 + self.seen()[1])


@cache
def signal_watch() -> SignalWatch:
    """Return the `SignalWatch` of this process."""
    return SignalWatch()
