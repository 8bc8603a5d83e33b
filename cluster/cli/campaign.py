"""Campaign folder of a command: made or found, refused if it is another's, removed if nothing was begun in it."""

import os
import resource
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from cluster.dispatch.host import ReachError
from cluster.dispatch.job import program
from cluster.storage.store import CampaignError, Store, new_campaign_folder

PARENT = Path("campaigns")
# Either of them is there from the first moment of a campaign.
_OWN = ("campaign.sqlite", "campaign.lock")
# A volume of its own may have this in its root.
_NOBODYS = ("lost+found",)
StorageError = OSError, sqlite3.Error


@contextmanager
def open_campaign(out: Path | None, stem: str) -> Iterator[Store]:
    """Provide the store of the folder that was named, else of a new one below `campaigns`.

    A folder that was made here does not stay when the campaign cannot be opened, or Ray cannot be reached.

    Raises:
        CampaignError: the folder cannot be made or written, or holds something else than a campaign.
    """
    is_new = out is None or not os.path.lexists(out)
    folder = out if out is not None else _new_folder(stem)
    if not is_new:
        _check_folder(folder)
    try:
        with Store(folder) as store:
            yield store
    except CampaignError as error:
        _remove(folder, is_new)
        if isinstance(error.__cause__, sqlite3.OperationalError):
            raise CampaignError(f"{cause(error.__cause__, folder)}; give another --out") from error
        raise
    except ReachError:
        _remove(folder, is_new)
        raise


def _remove(folder: Path, is_new: bool) -> None:
    """Remove a folder that this command has made, and its parent if that was made for it."""
    if not is_new:
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.parent == PARENT:
        try:
            PARENT.rmdir()
        except OSError:
            return


def _new_folder(stem: str) -> Path:
    try:
        return new_campaign_folder(PARENT, stem)
    except OSError as error:
        where = f"{Path.cwd() / PARENT}: {error.strerror}"
        raise CampaignError(f"{where}; name a folder that can be written with --out") from error


def _check_folder(folder: Path) -> None:
    try:
        names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name not in _NOBODYS)
    except OSError as error:
        raise CampaignError(f"{folder}: cannot be used: {error.strerror}; give another --out") from error
    if names and not any(own in names for own in _OWN):
        seen = f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
        raise CampaignError(f"{folder}: is not a campaign, it holds {seen}; name a new or an empty folder with --out")


def cause(error: OSError | sqlite3.Error, folder: Path) -> str:
    """Return in one sentence why a campaign cannot be written."""
    path = getattr(error, "filename", None) or folder
    text = getattr(error, "strerror", None) or str(error)
    # SQLite and the system name a full disk and a limit in several ways: what holds is looked up.
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and _is_size(error):
        return f"{path}: cannot be written: files may have at most {limit} bytes here (ulimit -f)"
    try:
        free = shutil.disk_usage(folder if folder.is_dir() else folder.parent).free
    except OSError:
        free = None
    if free is not None and _is_size(error) and free < 1 << 20:
        return f"{path}: cannot be written: the disk is full, {free} bytes are free"
    return f"{path}: cannot be written: {text}"


def _is_size(error: OSError | sqlite3.Error) -> bool:
    """Whether an error is one of those that a full disk or a limit on sizes gives."""
    text = str(error).lower()
    return any(word in text for word in ("disk", "space", "too large", "quota", "i/o"))


def report_failure(error: OSError | sqlite3.Error, folder: Path, context: typer.Context) -> None:
    """Say why a campaign was given up, and how to go on with it."""
    print(f"specstorm: {cause(error, folder)}; {resumed(context, folder)}", file=sys.stderr)


def resumed(context: typer.Context, folder: Path) -> str:
    """Return the sentence that tells how to go on with a campaign that was not brought to its end."""
    given: Sequence[str] = context.find_root().obj or ()
    named = any(word == "--out" or word.startswith("--out=") for word in given)
    words = [*given, *([] if named else ["--out", str(folder)])]
    return f"go on with: {program()} {shlex.join(words)}"
