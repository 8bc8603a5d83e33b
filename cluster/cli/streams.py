"""Standard streams of a command that survive a closed pipe, a full disk and unprintable text.

Verifies: that what is written arrives; the first error is kept.
Does not verify: that it is read.
"""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

# Errors of a write whose reader has left, as `head` does; they are not reported.
_READER_LEFT = (errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET)


class GuardedStream(io.TextIOBase):
    """A text stream whose writes never raise: after the first error everything is dropped, and `error` says why."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.error: OSError | None = None
        if isinstance(stream, io.TextIOWrapper):
            # A file name may hold bytes that are no text, and a terminal may know fewer characters than a trace.
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class declares a variable
        """Return the encoding of the stream behind."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def lost(self) -> OSError | None:
        """Return why something could not be written, None if nothing failed or the reader has left."""
        return None if self.error is None or self.error.errno in _READER_LEFT else self.error

    def isatty(self) -> bool:
        """Whether the stream behind is a terminal."""
        return self._stream is not None and self.error is None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream behind."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def writable(self) -> bool:
        """Whether writing is possible: always, since what cannot be written is dropped."""
        return True

    def write(self, text: str) -> int:
        """Write a text, or drop it after an error."""
        self._attempt(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush the stream behind, unless an error closed it."""
        self._attempt(lambda stream: stream.flush())

    def _attempt(self, act: Callable[[TextIO], object]) -> None:
        if self._stream is not None and self.error is None:
            try:
                act(self._stream)
            except (OSError, ValueError) as error:
                self._fail(error)

    def _fail(self, error: OSError | ValueError) -> None:
        """Keep the error and redirect the descriptor to the null device: buffered text would fail again at exit."""
        assert self._stream is not None, "a stream that is closed does not fail"
        # A stream that was closed raises ValueError.
        self.error = error if isinstance(error, OSError) else OSError(errno.EBADF, os.strerror(errno.EBADF))
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


@contextmanager
def guarded_streams() -> Iterator[tuple[GuardedStream, GuardedStream]]:
    """Guard stdout and stderr, and flush them at the end."""
    before = sys.stdout, sys.stderr
    out, err = GuardedStream(sys.stdout), GuardedStream(sys.stderr)
    sys.stdout, sys.stderr = out, err  # a text stream in all that is used
    try:
        yield out, err
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
