"""The Ray job in which this driver runs: its id, permanent folder, and progress.

The working folder of a job is a copy of the submitted tree, which Ray deletes. So `campaigns` becomes a link there to a
permanent folder of the node, and a path below it is valid for the driver and for the job that fetches the campaign.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CAMPAIGNS = Path("campaigns")
FOLDER_VARIABLE = "SPECSTORM_CAMPAIGNS"
FOLDER_DEFAULT = "specstorm-campaigns"
# Shell expression, on the head node, for the target of a job's `campaigns` link.
FOLDER_IN_SHELL = f'"${{{FOLDER_VARIABLE}:-$HOME/{FOLDER_DEFAULT}}}"'
PUT_SECONDS = 2.0
_CONFIG_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_ID = "job_submission_id"


def job_metadata(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a driver's Ray job from its environment.

    An empty dict outside of a job.
    """
    try:
        metadata = json.loads(environment.get(_CONFIG_VARIABLE, "{}")).get("metadata", {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    if not isinstance(metadata, dict):
        return {}
    return {str(key): str(value) for key, value in metadata.items()}


def job_id(environment: Mapping[str, str]) -> str | None:
    """Return the submission id of a driver's Ray job from its environment.

    None outside of a job.
    """
    return job_metadata(environment).get(_ID) or None


def reader_program(environment: Mapping[str, str]) -> str | None:
    """Return the command that starts specstorm where a job's log is read.

    None outside of a job.
    """
    metadata = job_metadata(environment)
    return metadata.get("program", "specstorm") if metadata.get(_ID) else None


def keep_campaigns(environment: Mapping[str, str], here: Path) -> None:
    """In a Ray job, link `campaigns` to a folder that outlives the job.

    An existing `campaigns` is left alone.
    """
    link = here / CAMPAIGNS
    if job_id(environment) is None or os.path.lexists(link):
        return
    folder = Path(environment.get(FOLDER_VARIABLE) or Path.home() / FOLDER_DEFAULT).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    # Jobs that were submitted from the same tree share a working folder: another one may create the link first.
    with suppress(FileExistsError):
        link.symlink_to(folder, target_is_directory=True)


class JobProgress:
    """Writes a campaign's progress into its job's metadata, every `PUT_SECONDS` at most.

    Does nothing outside of a job.

    The progress is only displayed: if it cannot be written, the campaign continues without.
    """

    def __init__(self, campaign: Path | None) -> None:
        ray = sys.modules.get("ray")
        self._job = job_id(os.environ) if ray is not None and ray.is_initialized() else None
        self._campaign = campaign
        self._next = 0.0
        self._last: dict[str, str] = {}

    def update(self, done: int, total: int | None, findings: int) -> None:
        """Write the newest counts, unless counts were just written."""
        assert total is None or done <= total, f"{done} of {total} done"
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PUT_SECONDS
            self.close(done, total, findings)

    def close(self, done: int, total: int | None, findings: int) -> None:
        """Write the last counts into the metadata of the job."""
        assert done >= 0 <= findings, f"{done} done, {findings} findings"
        known = {} if self._campaign is None else {"folder": str(self._campaign)}
        of_all = "" if total is None else f" of {total}"
        found = f"{findings} {'finding' if findings == 1 else 'findings'}"
        values = {**known, "progress": f"{done}{of_all} done, {found}"}
        if self._job is None or values == self._last:
            return
        try:
            _put(self._job, values)
        except Exception:  # private calls of Ray may raise anything, which must not end a campaign
            self._job = None
        self._last = values


def _put(job: str, values: Mapping[str, str]) -> None:
    """Write metadata of a job to the table of Ray's job server.

    Ray has no public call for this. The server itself writes the entry only before the driver starts and after it ends,
    so there is no other writer in between.
    """
    gcs = sys.modules["ray"]._private.worker.global_worker.gcs_client
    key, namespace = f"_ray_internal_job_info_{job}".encode(), b"job"
    entry = json.loads(gcs.internal_kv_get(key, namespace, timeout=PUT_SECONDS))
    if entry["status"] != "RUNNING":
        return
    entry["metadata"] = {**(entry["metadata"] or {}), **values}
    gcs.internal_kv_put(key, json.dumps(entry).encode(), True, namespace, timeout=PUT_SECONDS)
