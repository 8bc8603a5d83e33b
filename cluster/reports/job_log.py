"""Artefacts in the log of a Ray job, where they survive if nothing else of the job is left."""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from cluster.dispatch.job import command
from cluster.dispatch.ray_job import CAMPAIGNS, job_id, reader_program
from cluster.reports.terminal import show
from scenarios.codec import loads
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file
from scenarios.strict_yaml import ScenarioError
from scenarios.visible import is_visible
from workers.targets.target import DEFAULT_CONFIG

FILES_MAX = 10
BYTES_MAX = 64 * 1024
# Limits of a campaign folder: file systems allow 255 bytes per name and 4,096 per path, including the file names in it.
NAME_BYTES_MAX, PATH_BYTES_MAX = 200, 2048
_BEGIN = re.compile(r"----- artefact (?P<folder>.+)/artefacts/(?P<name>[a-z_]+-[0-9a-f]{8}\.yaml)")
_END = "----- end of artefact"
_REMARK = "----- "
# Escape sequence of a terminal colour.
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def log_artefacts(folder: Path, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
    """In a Ray job, print the first artefacts of a campaign, for `from_log`."""
    if job_id(environment) is None:
        return
    left, more = BYTES_MAX, []
    for number, path in enumerate(sorted((folder / "artefacts").glob("*.yaml"))):
        text = read_file(path, CAMPAIGN_BYTES_MAX).decode("utf-8", "replace").removesuffix("\n")
        size = len(text.encode())
        if number >= FILES_MAX or size > left:
            more.append(path.name)
            continue
        left -= size
        show(f"----- artefact {folder}/artefacts/{path.name}", *text.split("\n"), _END, to=stream)
    if more:
        show(f"{_REMARK}{len(more)} more in {folder}/artefacts: {', '.join(more)}", to=stream)
    if more or left < BYTES_MAX:
        home = f"{reader_program(environment)} attach {job_id(environment)}"
        how = f"{home} brings the campaign home; {reader_program(environment)} extract LOG what stands above"
        show(f"{_REMARK}{how}", to=stream)


def from_log(log: str) -> dict[Path, str]:
    """Return the artefacts that a job's log contains, by their path on this machine.

    A later one replaces one of the same path.
    """
    found: dict[Path, str] = {}
    path: Path | None = None
    lines: list[str] = []
    for line in log.splitlines():
        begin = _BEGIN.fullmatch(line)
        if begin is not None:
            home = home_of(begin["folder"])
            path, lines = None if home is None else home / "artefacts" / begin["name"], []
        elif path is not None and line == _END:
            # JSON can have half of a surrogate pair, which a file cannot.
            found[path] = "\n".join(lines).encode(errors="replace").decode() + "\n"
            path = None
        elif path is not None:
            lines.append(line)
    return found


def home_of(campaign: str) -> Path | None:
    """Return the path on this machine for a job's campaign, below `campaigns`.

    None for a path without a usable name, such as `/`, `.` and `/data/..`, or with a name that a terminal or file
    system does not accept.
    """
    path = Path(campaign)
    if len(campaign.encode(errors="replace")) > PATH_BYTES_MAX or not is_visible(campaign):
        return None
    if path.name in ("", "..") or any(len(part.encode()) > NAME_BYTES_MAX for part in path.parts):
        return None
    if path.is_absolute() or path.parts[0] != CAMPAIGNS.name or ".." in path.parts:
        path = CAMPAIGNS / path.name
    # A hidden folder may control other programs, as .git does.
    is_hidden = any(part.startswith(".") for part in path.parts)
    return path if len(path.parts) > 1 and not is_hidden else None


class WithoutArtefacts:
    """Filter that passes on the lines of a log, without artefacts and colours."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._is_inside = False

    def __call__(self, line: str) -> None:
        """Pass on the next line, unless it belongs to an artefact."""
        self._is_inside = self._is_inside or _BEGIN.fullmatch(line) is not None
        if not self._is_inside and not line.startswith(_REMARK):
            self._show(_COLOUR.sub("", line).expandtabs())
        self._is_inside = self._is_inside and line != _END


def replay_lines(artefacts: Mapping[Path, str]) -> list[str]:
    """Return the command that replays each valid artefact."""
    found = []
    for path, text in sorted(artefacts.items()):
        with suppress(ScenarioError):
            loads(text, str(path))
            found.append(command("replay", path, DEFAULT_CONFIG))
    return found
