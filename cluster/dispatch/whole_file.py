"""Write files atomically: under a temporary name, then renamed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from secrets import token_hex
from typing import IO

_SUFFIX = ".tmp"
# A file system allows 255 bytes for a name; the rest of a temporary name has 14.
_STEM_BYTES_MAX = 200


@contextmanager
def whole_file(folder: int, name: str, is_durable: bool = True, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a temporary file that becomes `name` in an open folder at the end of the block.

    Only `cluster.dispatch.inside` calls it, with a folder that the file cannot leave. `name` is the old file or the new
    one at any moment. Two processes that write one path use separate temporary files, and the last one to finish wins.
    After an error no temporary file is left; the one of a killed process is removed by the next process that writes the
    same path. With `is_durable` the new file survives a power cut.

    Raises:
        OSError: the file cannot be written.
    """
    remove_left(folder, f"{_stem(name)}.")
    temporary, file = _temporary_file(folder, name, mode)
    try:
        with file:
            yield file
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
            # Renamed while it is locked, so that no other process removes it as a remnant.
            file.flush()
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if is_durable:
        os.fsync(folder)


def _temporary_file(folder: int, name: str, mode: int) -> tuple[str, IO[bytes]]:
    """Create a locked temporary file in an open folder; return its name and the file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = f"{_stem(name)}.{token_hex(4)}{_SUFFIX}"
        try:
            file = os.fdopen(os.open(temporary, flags, mode, dir_fd=folder), "wb")
        except FileExistsError:
            continue
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Before it was locked, another writer may have removed it as a remnant.
        if temporary in os.listdir(folder):
            return temporary, file
        file.close()


def remove_left(folder: int, begin: str = ".") -> None:
    """Remove temporary files of dead writers from an open folder.

    A living writer holds the lock of its file.

    Raises:
        OSError: the folder cannot be read.
    """
    for name in os.listdir(folder):
        if name.startswith(begin) and name.endswith(_SUFFIX):
            with suppress(OSError):
                left = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
                try:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(name, dir_fd=folder)
                finally:
                    os.close(left)


def _stem(name: str) -> str:
    return "." + os.fsencode(name)[:_STEM_BYTES_MAX].decode(errors="ignore")
