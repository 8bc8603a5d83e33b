"""Safe paths in a folder: names must not lead out of it, and links are refused.

The folder itself was chosen by the user, and may be a link. Its content may come from anywhere.

All files of a campaign are written with these functions: each folder is opened relative to its parent, never by a link.

Verifies: each part of a path when it is resolved, and again while a file is written, moved or removed.
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
    """A path leads out of its folder, by its name or by a link."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(errno.ELOOP, why, str(path))


def inside(folder: Path, name: str) -> Path:
    """Return the path of a relative name in a folder, which need not exist.

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
    """Create a folder in a folder unless it exists; return its path.

    Raises:
        LeavesFolderError: as `inside`.
        OSError: it cannot be created.
    """
    path = inside(folder, name)
    with _open_subfolder(folder, path.relative_to(folder).parts):
        return path


@contextmanager
def writing_inside(folder: Path, name: str, is_durable: bool = True, is_private: bool = False) -> Iterator[IO[bytes]]:
    """Open a temporary file that becomes `name` in a folder at the end of the block.

    After an error in the block, the old file stays. The folder must exist.

    Missing folders between are created. With `is_private` the file and these folders are accessible to their owner
    alone.

    Raises:
        LeavesFolderError: as `inside`; also when a link replaces a folder meanwhile.
        OSError: it cannot be written.
    """
    path = inside(folder, name)
    file_mode, folder_mode = (0o600, 0o700) if is_private else (0o666, 0o777)
    try:
        with (
            _open_subfolder(folder, path.relative_to(folder).parts[:-1], folder_mode) as descriptor,
            whole_file(descriptor, path.name, is_durable, file_mode) as file,
        ):
            yield file
    except OSError as error:
        # Calls with a descriptor report only the last part of a path.
        if isinstance(error.filename, str) and "/" not in error.filename:
            error.filename = str(path)
        raise


def write_inside(folder: Path, name: str, text: str | bytes, is_private: bool = False) -> Path:
    """Write a complete file into a folder and return its path.

    A missing folder is created.

    Raises:
        LeavesFolderError: as `writing_inside`.
        OSError: it cannot be written.
    """
    folder.mkdir(mode=0o700 if is_private else 0o777, parents=True, exist_ok=True)
    with writing_inside(folder, name, is_private=is_private) as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return folder / name


def move_inside(source: Path, folder: Path, name: str) -> None:
    """Move a file to a name in a private folder of the same file system.

    An existing file is replaced.

    Raises:
        LeavesFolderError: as `writing_inside`.
        OSError: it cannot be moved.
    """
    path = inside(folder, name)
    with _open_subfolder(folder, path.relative_to(folder).parts[:-1], 0o700) as descriptor:
        os.replace(source, path.name, dst_dir_fd=descriptor)


def remove_inside(folder: Path, name: str) -> None:
    """Remove a file from a folder if it exists.

    Raises:
        LeavesFolderError: a folder between is a link.
        OSError: it cannot be removed.
    """
    *between, last = PurePosixPath(name).parts
    with suppress(FileNotFoundError), _open_subfolder(folder, between, mode=None) as descriptor:
        os.unlink(last, dir_fd=descriptor)


def remove_left_inside(folder: Path, name: str = "") -> None:
    """Remove temporary files of dead writers from a folder or its subfolder `name`.

    Raises:
        OSError: as `remove_inside`.
    """
    with _open_subfolder(folder, PurePosixPath(name).parts, mode=None) as descriptor:
        remove_left(descriptor)


@contextmanager
def _open_subfolder(folder: Path, parts: Sequence[str], mode: int | None = 0o777) -> Iterator[int]:
    """Open a subfolder and yield its descriptor.

    Each part is opened relative to the previous one, and is no link.

    Missing folders are created with `mode`, or raise an error if that is None.
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
    """Yield the regular files of a folder that match a pattern, sorted.

    Files behind a link are skipped.
    """
    for path in sorted(folder.glob(pattern)):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(folder.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts))):
            yield path
