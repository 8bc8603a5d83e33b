"""Errors of storage: an unusable campaign, or a failure to read or write one."""

import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

FREE_BYTES_MIN = 1 << 20
# Errors of SQLite that come from the machine or its disk, by the prefix of their names.
_MACHINE = ("FULL", "IOERR", "READONLY", "CANTOPEN", "BUSY", "LOCKED", "NOMEM", "PERM", "AUTH")


class CampaignError(ValueError):
    """A campaign directory cannot be used; the message says why and how to continue."""


class StoreError(RuntimeError):
    """A campaign can no longer be read or written; earlier results stay stored.

    `is_damage` is set if stored bytes were altered.
    """

    def __init__(self, message: str, is_damage: bool = False) -> None:
        super().__init__(message)
        self.is_damage = is_damage


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Convert errors of the file system and SQLite at a file to a `StoreError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error


@contextmanager
def reading_values(folder: Path, command: str) -> Iterator[None]:
    """Convert a validation error of stored values to a `CampaignError`."""
    try:
        yield
    except ValidationError as error:
        what = f"{error.title}: {first_problem(error)}"
        hint = f"{command} with the version that wrote it"
        raise CampaignError(f"{folder}: holds what this version cannot read: {what}; {hint}") from error


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a value: its location and the message."""
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def store_error(path: Path, error: sqlite3.Error | OSError) -> StoreError:
    """Return the `StoreError` for an error of the file system or SQLite at a file or folder."""
    if isinstance(error, sqlite3.DatabaseError) and is_damage(error):
        what = f"{path}: its bytes were altered while it was open ({error})"
        return StoreError(f"{what}; the next command that opens it repairs it", is_damage=True)
    folder = path if path.is_dir() else path.parent
    if not isinstance(error, OSError):
        return StoreError(f"{folder}: cannot be written: {_size_problem(error, folder) or error}")
    where = error.filename if isinstance(error.filename, str) else path
    return StoreError(f"{where}: cannot be written: {_size_problem(error, folder) or error.strerror or error}")


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether an SQLite error means altered bytes, rather than a failing machine or disk."""
    return not (getattr(error, "sqlite_errorname", None) or "").removeprefix("SQLITE_").startswith(_MACHINE)


def _size_problem(error: sqlite3.Error | OSError, folder: Path) -> str | None:
    """Describe a full disk or a size limit, which SQLite reports in several ways.

    None for other errors.
    """
    if not any(word in str(error).lower() for word in ("disk", "space", "too large", "quota", "i/o")):
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY:
        return f"files may have at most {limit} bytes here (ulimit -f)"
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return None
    return f"the disk is full, {free} bytes are free" if free < FREE_BYTES_MIN else None
