"""Failures of worker processes: each writes its first exception to a file, which the engine's process reads.

vLLM logs an exception of a rank that does not reply to the engine, and the engine then waits for the other ranks.
"""

import json
import logging
import os
import tempfile
from multiprocessing import current_process
from pathlib import Path

from workers.targets.child.inside.host import failure
from workers.targets.child.messages import Message

# The logger to which vLLM's worker process passes the exceptions that end a call.
_LOGGER = "vllm.v1.executor.multiproc_executor"
# The names of vLLM's worker processes end with the rank.
_NAME = "VllmWorker-"
_FILE = "specstorm-rank-{}.json"


def record_failures() -> None:
    """Write the first exception that vLLM logs in this rank's process to a file."""
    # A filter, as vLLM's configuration of its loggers removes handlers.
    logging.getLogger(_LOGGER).addFilter(_record)


def _record(logged: logging.LogRecord) -> bool:
    error = logged.exc_info[1] if logged.exc_info else None
    rank = current_process().name.removeprefix(_NAME)
    file = _folder() / _FILE.format(rank)
    if error is not None and not file.exists():
        message = failure(error)
        whole = file.with_suffix(f".{os.getpid()}")
        whole.write_text(json.dumps({**message, "error": f"rank {rank}: {message['error']}"}))
        whole.rename(file)
    return True


def recorded_failure() -> Message | None:
    """Return the failure that a rank has recorded, of the lowest rank if there are several; None without one."""
    files = sorted(_folder().glob(_FILE.format("*")))
    return json.loads(files[0].read_text()) if files else None


def _folder() -> Path:
    """Return the folder for temporary files of the engine's process, which its worker processes share."""
    return Path(tempfile.gettempdir())
