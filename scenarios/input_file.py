"""Input files of all commands: open without blocking, read up to a size limit."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Size limit of a file in a campaign folder, or of a file that one command writes for another command to read.
CAMPAIGN_BYTES_MAX = 256 << 20
_CHUNK_BYTES = 1 << 20


def read_file(path: Path | str, bytes_max: int) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: the file cannot be read, is not regular, or has more than `bytes_max` bytes; `strerror` says which.
    """
    with open_regular_file(path) as descriptor:
        size = os.fstat(descriptor).st_size
        chunks = []
        while size <= bytes_max and (chunk := _next(descriptor, path)):
            chunks.append(chunk)
            # A file in /proc, or a file that grows, can hold more bytes than fstat reports.
            size = max(size, sum(map(len, chunks)))
        if size > bytes_max:
            raise _refusal(path, errno.EFBIG, f"more than {bytes_max} bytes; use a smaller file")
    return b"".join(chunks)


@contextmanager
def open_regular_file(path: Path | str) -> Iterator[int]:
    """Open a regular file for reading and yield its descriptor; a context manager.

    A pipe, a device or a file of the kernel that waits for its reader is refused: opening or reading it may never
    return.

    Raises:
        OSError: the file cannot be opened, or is not regular.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refusal(path, errno.EINVAL, "not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def check_regular(path: Path | str) -> None:
    """Raise for anything but a regular file, without opening it.

    Closing a database file would release the locks on it.

    Raises:
        OSError: the file does not exist, or is not regular.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _refusal(path, errno.EINVAL, "not a regular file")


def _next(descriptor: int, path: Path | str) -> bytes:
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError as error:
        raise _refusal(path, errno.EINVAL, "not a regular file") from error


def _refusal(path: Path | str, number: int, why: str) -> OSError:
    return OSError(number, why, str(path))
