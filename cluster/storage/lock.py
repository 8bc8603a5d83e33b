"""Lock of a campaign directory: one process writes it."""

import fcntl
import time
from pathlib import Path
from typing import IO

from cluster.storage.errors import CampaignError

LOCK = "campaign.lock"
TRIES = 10
WAIT_SECONDS = 0.05


def take_lock(folder: Path) -> IO[str]:
    """Take the lock of a campaign and return its open file; closing it frees the lock.

    Raises:
        CampaignError: another process holds it, or it cannot be written.
    """
    try:
        file = (folder / LOCK).open("w")
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
