"""Input files: opened without waiting, and read as far as a bound. Every command reads its inputs by it."""

import errno
import os
import stat
from pathlib import Path

_CHUNK_BYTES = 1 << 20


def read_file(path: Path | str, bytes_max: int) -> bytes:
    """Return the content of a regular file.

    A pipe, a device or a file of the kernel that waits for its reader is refused: opening or reading it may never
    return.

    Raises:
        OSError: the file cannot be read, is not regular, or has more than `bytes_max` bytes; `strerror` says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise _refusal(path, errno.EINVAL, "not a regular file")
        if state.st_size > bytes_max:
            raise _too_large(path, bytes_max)
        return _read(descriptor, path, bytes_max)
    except BlockingIOError as error:
        raise _refusal(path, errno.EINVAL, "not a regular file") from error
    finally:
        os.close(descriptor)


def _read(descriptor: int, path: Path | str, bytes_max: int) -> bytes:
    chunks, size = [], 0
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        # A file of the kernel, or one that grows, is longer than its size says.
        if size > bytes_max:
            raise _too_large(path, bytes_max)
    return b"".join(chunks)


def _too_large(path: Path | str, bytes_max: int) -> OSError:
    return _refusal(path, errno.EFBIG, f"more than {bytes_max:,} bytes; at most so many are read")


def _refusal(path: Path | str, number: int, why: str) -> OSError:
    return OSError(number, why, str(path))
