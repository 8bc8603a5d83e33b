"""Paths inside a folder: no part of a name leads up, and no part of a path is a link.

The folder itself is one that the user named, and may be a link. What is in it may come from anywhere.

Verifies: each part of a path, when it is asked for.
Does not verify: hard links, mounts, and a process that changes the folder meanwhile.
"""

import errno
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cluster.dispatch.whole_file import whole_file


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
            raise LeavesFolderError(path, "is a link, which may lead out of its folder; remove it")
    return path


def make_inside(folder: Path, name: str) -> Path:
    """Make a folder in a folder that exists, unless it is there, and return its path.

    Raises:
        LeavesFolderError: as `inside`.
        OSError: it cannot be made.
    """
    path = inside(folder, name)
    path.mkdir(parents=True, exist_ok=True)
    return path


def write_inside(folder: Path, name: str, text: str | bytes) -> Path:
    """Write a whole file in a folder, with the folders between, and return its path.

    Raises:
        LeavesFolderError: as `inside`.
        OSError: it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = inside(folder, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(text.encode() if isinstance(text, str) else text)
    return path


def files_inside(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield the regular files of a folder by a pattern of their relative paths, sorted; none by way of a link."""
    for path in sorted(folder.glob(pattern)):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(folder.joinpath(*parts[: end + 1]).is_symlink() for end in range(len(parts))):
            yield path
