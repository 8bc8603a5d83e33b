"""Paths inside a folder: no part of a name leads up, and no part of a path is a link.

The folder itself is one that the user named, and may be a link. What is in it may come from anywhere.

Everything that is written into a campaign is written here: each folder is opened in the one above, never by a link.

Verifies: each part of a path, when it is asked for; and again while a file is written, moved or removed.
Does not verify: hard links and mounts; a process that changes the folder after `inside` or `files_inside` returned.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO

from cluster.dispatch.whole_file import remove_left, whole_file

_LINK = "is a link, which may lead out of its folder; remove it"


class LeavesFolderError(OSError):
    """A path leads out of the folder that is read or written."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.ELOOP, why, str(path))


def inside(folder: Path, name: str) -> Path:
    """Return the path of a relative name in a folder; the file or folder need not exist.

    Raises:
        LeavesFolderError: the name leads out of the folder, or a part of the path is a link.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise LeavesFolderError(folder / name, "leads out of its folder")
    path = folder
    for part in parts:
        path /= part
        if path.is_symlink():
            raise LeavesFolderError(path, _LINK)
    return path


def make_inside(folder: Path, name: str) -> Path:
    """Make a folder in a folder that exists, unless it is there, and return its path.

    Raises:
        LeavesFolderError: as `inside`.
        OSError: it cannot be made.
    """
    path = inside(folder, name)
    with _opened(folder, path.relative_to(folder).parts):
        return path


@contextmanager
def writing_inside(folder: Path, name: str, is_durable: bool = True, is_private: bool = False) -> Iterator[IO[bytes]]:
    """Provide a file to write that replaces one in a folder that exists when the block ends without an error.

    Folders between are made. With `is_private` the file and these folders are for their owner alone.

    Raises:
        LeavesFolderError: as `inside`; also when a link takes the place of a folder meanwhile.
        OSError: it cannot be written.
    """
    path = inside(folder, name)
    file_mode, folder_mode = (0o600, 0o700) if is_private else (0o666, 0o777)
    try:
        with (
            _opened(folder, path.relative_to(folder).parts[:-1], folder_mode) as descriptor,
            whole_file(descriptor, path.name, is_durable, file_mode) as file,
        ):
            yield file
    except OSError as error:
        # Calls by a descriptor name only the last part of a path.
        if isinstance(error.filename, str) and "/" not in error.filename:
            error.filename = str(path)
        raise


def write_inside(folder: Path, name: str, text: str | bytes, is_private: bool = False) -> Path:
    """Write a whole file in a folder, which is made if there is none, and return its path.

    Raises:
        LeavesFolderError: as `writing_inside`.
        OSError: it cannot be written.
    """
    folder.mkdir(mode=0o700 if is_private else 0o777, parents=True, exist_ok=True)
    with writing_inside(folder, name, is_private=is_private) as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return folder / name


def move_inside(source: Path, folder: Path, name: str) -> None:
    """Move a file of the same file system to a name in a private folder, in the place of one of that name.

    Raises:
        LeavesFolderError: as `writing_inside`.
        OSError: it cannot be moved.
    """
    path = inside(folder, name)
    with _opened(folder, path.relative_to(folder).parts[:-1], 0o700) as descriptor:
        os.replace(source, path.name, dst_dir_fd=descriptor)


def remove_inside(folder: Path, name: str) -> None:
    """Remove a file in a folder, if there is one.

    Raises:
        LeavesFolderError: a folder between is a link.
        OSError: it cannot be removed.
    """
    *between, last = PurePosixPath(name).parts
    with suppress(FileNotFoundError), _opened(folder, between, mode=None) as descriptor:
        os.unlink(last, dir_fd=descriptor)


def remove_left_inside(folder: Path, name: str = "") -> None:
    """Remove the temporary files of dead writers from a folder, or from one in it.

    Raises:
        OSError: as `remove_inside`.
    """
    with _opened(folder, PurePosixPath(name).parts, mode=None) as descriptor:
        remove_left(descriptor)


@contextmanager
def _opened(folder: Path, parts: Sequence[str], mode: int | None = 0o777) -> Iterator[int]:
    """Provide the descriptor of a folder below another; each part is opened in the one before, and is no link.

    Missing folders are made with a mode, or raise an error if that is None.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    descriptor, path = os.open(folder, flags), folder
    try:
        for part in parts:
            path /= part
            try:
                if mode is not None:
                    with suppress(FileExistsError):
                        os.mkdir(part, mode, dir_fd=descriptor)
                inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                if path.is_symlink():
                    raise LeavesFolderError(path, _LINK) from error
                error.filename = str(path)
                raise
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def files_inside(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the regular files of a folder by a pattern of their relative paths, sorted; none by way of a link."""
    for path in sorted(folder.glob(pattern)):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(folder.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts))):
            yield path
