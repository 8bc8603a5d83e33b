"""Messages between the judging process and an engine's own process: one JSON object a line, bounded.

Nothing is unpickled on either side: a process whose memory a wrong schedule has spoilt can say nothing worse than a
wrong answer.
"""

import json
from typing import IO, Any, Literal, TypeAlias

LINE_BYTES_MAX = 16 << 20

Message: TypeAlias = dict[str, Any]
# vLLM's model runners, the first and the second generation: a process has engines with one of them.
RunnerName: TypeAlias = Literal["v1", "v2"]


class MessageError(ValueError):
    """What came is no message."""


def write_message(stream: IO[bytes], message: Message) -> None:
    """Write one message and let it go."""
    line = json.dumps(message, separators=(",", ":")).encode()
    if len(line) >= LINE_BYTES_MAX:
        raise MessageError(f"a message of {len(line)} bytes; at most {LINE_BYTES_MAX} are allowed")
    stream.write(line + b"\n")
    stream.flush()


def read_message(stream: IO[bytes]) -> Message | None:
    """Return the next message, None at the end of the stream.

    Raises:
        MessageError: a line is too long, cut off, or no JSON object.
    """
    line = stream.readline(LINE_BYTES_MAX + 1)
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise MessageError(f"a line that is cut off or longer than {LINE_BYTES_MAX} bytes")
    try:
        message = json.loads(line)
    except ValueError as error:
        raise MessageError(f"a line that is no JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise MessageError(f"a line that is no JSON object: {line[:80]!r}")
    return message
