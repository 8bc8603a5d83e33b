"""Messages between the judging process and an engine's own process: one JSON object a line, bounded and numbered.

A question is `{"number": 3, "do": "step", ...}`, its answer `{"number": 3, "answer": {...}}`, or
`{"number": 3, "error": "...", "where": "..."}` where the engine raised. Each question gets one answer, and nothing else
is said; the first answer, to question 0 that nobody asked, greets. Nothing is unpickled on either side: a process whose
memory a wrong schedule has spoilt can say nothing worse than a wrong answer.
"""

import json
from typing import IO, Any, TypeAlias

from scenarios.strict_json import TwiceError, read_json

LINE_BYTES_MAX = 16 << 20
# Made before an engine is loaded: what that does to `json` changes no message.
_ENCODED = json.JSONEncoder(separators=(",", ":")).encode
# The number of the greeting.
GREETING = 0

Message: TypeAlias = dict[str, Any]


class MessageError(ValueError):
    """A line read or to be written is no message."""


def line_of(message: Message) -> bytes:
    """Return a message as a line.

    Raises:
        MessageError: it is too long.
    """
    line = _ENCODED(message).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise MessageError(f"a message of {len(line)} bytes; at most {LINE_BYTES_MAX} are allowed")
    return line


def read_message(stream: IO[bytes]) -> Message | None:
    """Wait for the next message and return it, None at the end of the stream.

    Raises:
        MessageError: a line is too long, cut off, or no JSON object.
    """
    line = stream.readline(LINE_BYTES_MAX + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MessageError(f"a line that is cut off or longer than {LINE_BYTES_MAX} bytes")
    return message_in(line)


def message_in(line: bytes) -> Message:
    """Return the message in a line.

    Raises:
        MessageError: it is no JSON object, or a key appears twice in it.
    """
    try:
        message = read_json(line)
    except TwiceError as error:
        raise MessageError(f"a line in which {error}: {line[:80]!r}") from error
    except ValueError as error:
        raise MessageError(f"a line that is no JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise MessageError(f"a line that is no JSON object: {line[:80]!r}")
    return message


def write_message(stream: IO[bytes], message: Message) -> None:
    """Write a message and flush it.

    Raises:
        MessageError: it is too long.
    """
    stream.write(line_of(message))
    stream.flush()
