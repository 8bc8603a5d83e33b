"""Output of all commands and reports on the terminal: lines, JSON documents, tables.

Lines show hidden characters as escapes; the standard streams do the same for every other writer. Streams survive a
closed pipe and a full disk.

Verifies: that no control, bidirectional or invisible character of a text reaches the terminal; the first error is kept.
Does not verify: that the output is read.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, TextIO, cast

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from scenarios.visible import visible_json, visible_line, visible_text

# Errors of a write after the reader has left, as `head` does; they are not reported.
_READER_LEFT = (errno.EPIPE, errno.ESHUTDOWN, errno.ECONNRESET)


# Erases the current line of a terminal.
_ERASE = "\r\x1b[2K"
# Colours in the help of a command on a terminal.
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
# Starts of a workflow command, which a GitHub runner executes at any place of a log.
_COMMAND = re.compile(r"^( *):(?=:)|##(?=\[)")


class GuardedStream(io.TextIOBase):
    """Text stream in which a failed write raises nothing; the error is kept.

    After the first error all output is dropped, and `error` has the reason.

    It shows hidden characters as escapes; `write_as_is` is for the program's own control sequences.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.error: OSError | None = None
        if isinstance(stream, io.TextIOWrapper):
            # A file name may have bytes that are not text, and a terminal may lack characters of a trace.
            stream.reconfigure(errors="backslashreplace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class declares a variable
        """Return the encoding of the underlying stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    @property
    def lost(self) -> OSError | None:
        """Return the error of a failed write, unless the reader closed the pipe; else None."""
        return None if self.error is None or self.error.errno in _READER_LEFT else self.error

    def isatty(self) -> bool:
        """Whether the underlying stream is a terminal."""
        return self._stream is not None and self.error is None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the underlying stream."""
        if self._stream is None:
            raise io.UnsupportedOperation("fileno")
        return self._stream.fileno()

    def writable(self) -> bool:
        """Return True: after an error, output is dropped."""
        return True

    def write(self, text: str) -> int:
        """Write a text with hidden characters escaped; after an error, drop it.

        Colours stay on a terminal.
        """
        parts = _COLOUR.split(text) if "\x1b" in text and self.isatty() else [text]
        self.write_as_is("".join(part if number % 2 else visible_text(part) for number, part in enumerate(parts)))
        return len(text)

    def write_as_is(self, text: str) -> None:
        """Write our own control sequences; after an error, drop them."""
        self._attempt(lambda stream: stream.write(text))

    def flush(self) -> None:
        """Flush the underlying stream, unless an error closed it."""
        self._attempt(lambda stream: stream.flush())

    def _attempt(self, act: Callable[[TextIO], object]) -> None:
        if self._stream is not None and self.error is None:
            try:
                act(self._stream)
            except (OSError, ValueError) as error:
                self._fail(error)

    def _fail(self, error: OSError | ValueError) -> None:
        """Remember the error, and redirect the descriptor to the null device.

        Buffered text would otherwise fail again at exit.
        """
        assert self._stream is not None, "a stream that is closed does not fail"
        # A closed stream raises ValueError.
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
    """Guard stdout and stderr during a `with` block, at whose end they are flushed."""
    before = sys.stdout, sys.stderr
    out, err = GuardedStream(sys.stdout), GuardedStream(sys.stderr)
    sys.stdout, sys.stderr = out, err  # a text stream in all that is used
    try:
        yield out, err
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before


def say(text: str) -> None:
    """Print a message of the program on stderr, on one line."""
    show(f"specstorm: {text}", to=sys.stderr)


def show(*lines: str, to: IO[str] | None = None) -> None:
    """Print lines, by default on stdout.

    Hidden characters and line breaks inside a line are escaped.
    """
    stream = sys.stdout if to is None else to
    print("".join(f"{printable(line)}\n" for line in lines), end="", file=stream, flush=True)


def printable(line: str) -> str:
    """Return a line without hidden characters and GitHub workflow commands."""
    return _COMMAND.sub(_disarmed, visible_line(line))


def _disarmed(begin: re.Match[str]) -> str:
    return "#\\x23" if begin[1] is None else f"{begin[1]}\\x3a"


def show_json(document: BaseModel | str) -> None:
    """Print a JSON document on stdout."""
    print(json_text(document), flush=True)


def json_text(document: BaseModel | str) -> str:
    """Return the text of a JSON document, indented, with hidden characters as JSON escapes."""
    return visible_json(document if isinstance(document, str) else document.model_dump_json(indent=2))


def text_of(lines: Iterable[str]) -> str:
    """Return lines, in printable form, as the text of a file."""
    return "\n".join(map(printable, lines))


def show_workflow_command(line: str, to: IO[str] | None = None) -> None:
    """Print a workflow command for a GitHub runner, on one line."""
    print(visible_line(line), file=sys.stdout if to is None else to, flush=True)


def rewrite(text: str, to: IO[str]) -> None:
    """Replace the terminal's current line by a text; "" erases it."""
    _as_is(to)(f"{_ERASE}{printable(text)}")
    to.flush()


def console_on(stream: TextIO) -> Console:
    """Return a console for tables, without markup.

    Outside of a terminal it neither wraps nor cuts.
    """
    console = Console(file=cast("IO[str]", _AsIs(stream)), highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 10_000
    return console


def show_table(table_of: Callable[[int], Table], to: TextIO) -> None:
    """Print the table for the terminal's width; its cells must be in printable form (`printable`)."""
    console = console_on(to)
    console.print(table_of(console.width))


class _AsIs(io.TextIOBase):
    """Stream for the package rich: its texts, already printable, are written unchanged."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class declares a variable
        """Return the encoding of the stream."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write a text unchanged."""
        _as_is(self._stream)(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream."""
        self._stream.flush()


def _as_is(stream: IO[str]) -> Callable[[str], object]:
    """Return the function that writes a text to a stream unchanged."""
    return stream.write_as_is if isinstance(stream, GuardedStream) else stream.write
