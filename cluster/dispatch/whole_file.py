"""Whole files: each is written under a temporary name and renamed when it is complete."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import IO

_SUFFIX = ".tmp"
# A file system takes 255 bytes for a name; the rest of a temporary name has 14.
_STEM_BYTES_MAX = 200


@contextmanager
def whole_file(path: Path, is_durable: bool = True) -> Iterator[IO[bytes]]:
    """Provide a file to write that replaces `path` when the block ends without an error.

    At any moment `path` is the old file or the new one. Two processes that write one path have a temporary file each,
    and the last one to finish wins. After an error no temporary file is left; the one of a killed process is removed by
    the next process that writes the same path. With `is_durable` the new file survives a power cut.

    Raises:
        OSError: the file cannot be written, or its folder is missing.
    """
    remove_left(path.parent, f"{_stem(path)}.")
    temporary, file = _temporary_file(path)
    try:
        with file:
            yield file
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
            # Renamed while it is locked: nobody can take it for a file that was left.
            file.flush()
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        _sync_folder(path.parent)


def _temporary_file(path: Path) -> tuple[Path, IO[bytes]]:
    """Create a locked temporary file in the folder of a path."""
    while True:
        temporary = path.with_name(f"{_stem(path)}.{token_hex(4)}{_SUFFIX}")
        try:
            file = temporary.open("xb")
        except FileExistsError:
            continue
        except OSError as error:
            error.filename = str(path)
            raise
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        # Before it was locked, another writer may have taken it for a file that was left.
        if temporary.exists():
            return temporary, file
        file.close()


def remove_left(folder: Path, begin: str = ".") -> None:
    """Remove the temporary files of a folder whose writers are dead: a living writer holds the lock of its file.

    Raises:
        OSError: the folder cannot be read.
    """
    for name in os.listdir(folder):
        if name.startswith(begin) and name.endswith(_SUFFIX):
            left = folder / name
            with suppress(OSError), left.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


def _stem(path: Path) -> str:
    return "." + os.fsencode(path.name)[:_STEM_BYTES_MAX].decode(errors="ignore")


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
