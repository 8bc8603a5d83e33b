"""Lock of a campaign directory: one process writes it, and leaves the name of its run there if it is killed."""

import fcntl
import time
from pathlib import Path
from typing import IO

from cluster.storage.errors import CampaignError

LOCK = "campaign.lock"
TRIES = 10
WAIT_SECONDS = 0.05
RUN_CHARACTERS_MAX = 100


def take_lock(folder: Path) -> IO[str]:
    """Take the lock of a campaign and return its open file; closing it frees the lock.

    Raises:
        CampaignError: another process holds it, or it cannot be written.
    """
    try:
        file = (folder / LOCK).open("a+", encoding="utf-8")
    except OSError as error:
        raise CampaignError(f"{folder}: cannot be written: {error.strerror}; give another --out") from error
    # A process that looks whether the campaign is being written holds it for a moment.
    for _ in range(TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(WAIT_SECONDS)
        except OSError as error:
            file.close()
            raise CampaignError(f"{folder}: cannot be locked: {error.strerror}; give another --out") from error
        else:
            return file
    file.close()
    raise CampaignError(f"{folder}: another process is writing this campaign; give another --out")


def killed_run(folder: Path) -> str | None:
    """Return the run that was killed while it held the lock of a campaign, None if the last one ended by itself.

    Nobody may write the campaign meanwhile.
    """
    try:
        with (folder / LOCK).open(encoding="utf-8", errors="replace") as file:
            return file.read(RUN_CHARACTERS_MAX).strip() or None
    except FileNotFoundError:
        return None


def note_run(lock: IO[str], run: str | None) -> None:
    """Write the name of the run that holds a lock, or that none does any more."""
    lock.truncate(0)
    if run is not None:
        lock.write(run)
        lock.flush()


def is_locked(folder: Path) -> bool:
    """Whether a process writes a campaign."""
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
