"""Messages between the judging process and an engine's process: one JSON object per line.

A question is `{"number": 3, "do": "step", ...}`. Its answer is `{"number": 3, "answer": {...}}`, e.g. with the output
tokens of the step, or `{"number": 3, "error": "...", "where": "..."}` if the engine raised an exception. Each question
gets exactly one answer, and the process writes nothing else; its first message, with number 0, is a greeting without a
question. Lines have a maximum length. Nothing is unpickled on either side: if a wrong schedule has corrupted the memory
of the process, the worst result is a wrong answer, such as wrong output tokens.
"""

import json
from typing import IO, Any, TypeAlias

from scenarios.strict_json import TwiceError, read_json

LINE_BYTES_MAX = 16 << 20
# Created before the engine is imported: if the engine patches `json`, messages do not change.
_ENCODED = json.JSONEncoder(separators=(",", ":")).encode
# The question number of the greeting.
GREETING = 0

Message: TypeAlias = dict[str, Any]


class MessageError(ValueError):
    """A line is not a valid message."""


def line_of(message: Message) -> bytes:
    """Return a message as a line of JSON.

    Raises:
        MessageError: it is too long.
    """
    line = _ENCODED(message).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise MessageError(f"a message of {len(line)} bytes; at most {LINE_BYTES_MAX} are allowed")
    return line


def read_message(stream: IO[bytes]) -> Message | None:
    """Wait for the next message and return it; return None at the end of the stream.

    Raises:
        MessageError: the line is too long, cut off, or not a JSON object.
    """
    line = stream.readline(LINE_BYTES_MAX + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MessageError(f"a line that is cut off or longer than {LINE_BYTES_MAX} bytes")
    return message_in(line)


def message_in(line: bytes) -> Message:
    """Parse a line as a message: a JSON object.

    Raises:
        MessageError: it is not a JSON object, or a key appears twice in it.
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
