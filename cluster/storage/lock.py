"""Locks: one process at a time writes a campaign or a folder of known findings.

A lock ends with its process.

Only the holder of a lock file decides whether a campaign is new, and what is removed. Only the holder removes a lock
file; a process that was waiting for it starts again with a new file. The lock of a killed process is free, and
`campaign.lock` then has the name of the killed run.
"""

import errno
import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO

from cluster.dispatch.inside import remove_left_inside
from cluster.storage.errors import CampaignError, StoreError, storing

LOCK = "campaign.lock"
# A process that checks whether a campaign is being written holds the lock for a moment.
MOMENT_SECONDS = 0.5
EDIT_SECONDS = 30.0
EDIT_LOCK = ".known.lock"
RUN_CHARACTERS_MAX = 100
# Names that are ignored in an empty folder: the root of a volume has this one.
IGNORED = ("lost+found",)
_POLL_SECONDS = 0.02
# More attempts than a folder that others create and remove at the same time ever needs.
_ATTEMPTS_MAX = 1000
# Files of a campaign before its first judgement, and files of a merge.
_FOLDERS = ("artefacts", "running", "seldom", "snapshot")
_FILES = ("campaign.sqlite", "campaign.sqlite-wal", "campaign.sqlite-shm", "results.jsonl", "progress.json")


class HeldError(CampaignError):
    """Another process has locked the campaign or folder."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A campaign folder that this process has locked.

    `made` are the folders that this process created for it, outermost first. `is_new` is set if the folder was no
    campaign when the lock was taken.
    """

    folder: Path
    lock: IO[str]
    made: tuple[Path, ...]
    is_new: bool

    @property
    def is_in_place(self) -> bool:
        """Return whether the lock file of this process is still in the folder."""
        return _is_at(self.lock, self.folder / LOCK)

    def note_run(self, run: str | None) -> None:
        """Write the name of the run that has the lock; None clears it."""
        self.lock.truncate(0)
        if run is not None:
            self.lock.write(run)
            self.lock.flush()

    def release(self) -> None:
        """Free the campaign's lock; the folder stays."""
        self.lock.close()

    def give_up(self) -> None:
        """Release the lock; remove a new campaign's folders first, unless others wrote there."""
        assert not self.lock.closed, "a claim is given up once, before its lock is free"
        try:
            if self.is_new and self.is_in_place:
                for name in _FOLDERS:
                    shutil.rmtree(self.folder / name, ignore_errors=True)
                for name in (*_FILES, LOCK):
                    with suppress(OSError):
                        (self.folder / name).unlink(missing_ok=True)
        finally:
            self.release()
        if self.is_new:
            _remove_folders(self.made)


def claim(folder: Path) -> Claim:
    """Create a campaign folder if it is missing, take its lock, and return both.

    Raises:
        HeldError: another process holds the lock.
        CampaignError: the folder cannot be created, its name is hidden, or its lock cannot be written.
    """
    parts = Path(os.path.abspath(folder)).parts
    if parts[-1].startswith(".") or any(part.casefold() == ".git" for part in parts):
        why = "a campaign is no hidden folder, and is not inside .git"
        raise CampaignError(f"{folder}: {why}; give another --out")
    try:
        lock, made = _lock_in(folder, folder / LOCK, MOMENT_SECONDS)
    except BlockingIOError as error:
        raise HeldError(f"{folder}: another process is writing this campaign; give another --out") from error
    except OSError as error:
        raise CampaignError(f"{folder}: cannot be written: {error.strerror}; give another --out") from error
    for name in ("", *_FOLDERS):
        with suppress(OSError):
            remove_left_inside(folder, name)
    return Claim(folder, lock, made, is_unused(folder))


def claim_next(parent: Path, stem: str) -> Claim:
    """Create the first free folder `<stem>-<number>` and take its lock.

    Two processes never get the same one.

    Raises:
        CampaignError: as `claim`.
        OSError: the parent cannot be created or read.
    """
    made = _make_folders(parent)
    names = [path.name.rpartition("-") for path in parent.iterdir()]
    number = max((int(number) for name, _, number in names if name == stem and number.isdecimal()), default=0)
    while True:
        number += 1
        folder = parent / f"{stem}-{number:04d}"
        if os.path.lexists(folder):
            continue
        # Another process may have created this folder since.
        with suppress(HeldError):
            claimed = claim(folder)
            if claimed.is_new and folder in claimed.made:
                return replace(claimed, made=tuple(dict.fromkeys((*made, *claimed.made))))
            claimed.release()


@contextmanager
def editing(folder: Path) -> Iterator[None]:
    """Lock a folder of known findings during a block, after waiting for other editors.

    Raises:
        StoreError: the folder cannot be written, or another process did not end its edit.
    """
    path = folder / EDIT_LOCK
    try:
        with storing(folder):
            lock, made = _lock_in(folder, path, EDIT_SECONDS)
    except StoreError as error:
        if isinstance(error.__cause__, BlockingIOError):
            raise StoreError(f"{folder}: locked by another process for {EDIT_SECONDS:g} s; try again later") from error
        raise
    with closing(lock):
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
            _remove_folders(made)


def is_unused(folder: Path) -> bool:
    """Return whether a folder is empty.

    The empty folders of a campaign that was killed during its start do not count.
    """
    names = [path for path in folder.iterdir() if path.name not in (LOCK, *IGNORED) and not path.name.startswith(".")]
    return all(path.name in _FOLDERS and path.is_dir() and not any(path.iterdir()) for path in names)


def killed_run(folder: Path) -> str | None:
    """Return the run that died while it had a campaign's lock; None if none did.

    No process may write the campaign during the call.
    """
    try:
        with _open_lock_file(folder / LOCK, os.O_RDONLY) as file:
            return file.read(RUN_CHARACTERS_MAX).strip() or None
    except FileNotFoundError:
        return None


def is_locked(folder: Path) -> bool:
    """Return whether a process is writing a campaign."""
    try:
        with _open_lock_file(folder / LOCK, os.O_RDONLY) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _lock_in(folder: Path, path: Path, seconds: float) -> tuple[IO[str], tuple[Path, ...]]:
    """Create a folder if it is missing, and lock a file in it.

    Return the file and the created folders.

    Raises:
        BlockingIOError: another process still held the lock after some seconds.
        OSError: the folder or the file cannot be created or locked.
    """
    made: list[Path] = []
    for attempt in count(1):
        try:
            made += _make_folders(folder)
            return _hold(path, seconds), tuple(dict.fromkeys(made))
        except FileNotFoundError:
            # The previous holder has removed the folder.
            if attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError("one of the attempts was the last")


def _hold(path: Path, seconds: float) -> IO[str]:
    """Lock a file and return it; wait some seconds if another process has the lock."""
    end = time.monotonic() + seconds
    while True:
        file = _open_lock_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            _lock(file, end)
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        # Its holder has removed it: another process may hold the new file at this path.
        file.close()


def _open_lock_file(path: Path, flags: int) -> IO[str]:
    """Open a lock file without following links and without waiting.

    Its content is replaced later.

    Raises:
        OSError: it cannot be opened, or is not a regular file with one name.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    state = os.fstat(descriptor)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file with one name", str(path))
    return os.fdopen(descriptor, "r" if flags == os.O_RDONLY else "a+", encoding="utf-8", errors="replace")


def _lock(file: IO[str], end: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        time.sleep(_POLL_SECONDS)


def _is_at(file: IO[str], path: Path) -> bool:
    """Return whether an open file is still the file at its path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and missing parents.

    Return the ones that this process created, outermost first.
    """
    made: list[Path] = []
    missing = [path for path in (folder, *folder.parents) if not path.is_dir()]
    for path in reversed(missing):
        try:
            os.mkdir(path)
            made.append(path)
        except FileExistsError:
            if not path.is_dir():
                raise
    return made


def _remove_folders(made: Sequence[Path]) -> None:
    """Remove folders that this process created, unless others have written into them.

    `made` has the outermost first.
    """
    for path in reversed(made):
        with suppress(OSError):
            path.rmdir()
