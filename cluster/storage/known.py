"""Known findings, triaged by people, and the dates on which nights saw each finding.

A folder has both: a file `NAME.known.yaml` for each known finding, written by people, and `seen.json`, written by
nights.
"""

from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from cluster.dispatch.inside import write_inside
from cluster.storage.errors import storing
from cluster.storage.lock import editing
from scenarios import strict_yaml
from scenarios.codec import BYTES_MAX, KNOWN_SUFFIX, SUFFIX
from scenarios.input_file import CAMPAIGN_BYTES_MAX, read_file
from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError
from scenarios.yaml_edit import scalar, with_values

SEEN = "seen.json"
_DAY = timedelta(days=1)
Status: TypeAlias = Literal["open", "assigned", "fixed", "expected", "suppressed"]


class KnownFinding(Value):
    """A triaged finding: `bug` is its fingerprint, `upstream` a link to the issue or fix.

    A night does not report it, forever or before the day `until`, unless its status is `open`: then nobody works on it.
    `to` is the assignee of an `assigned` one; a `fixed` one is fixed upstream.
    """

    bug: Annotated[str, Field(min_length=1)]
    upstream: str = ""
    status: Status
    to: str = ""
    until: date | None = None
    note: str = ""

    @model_validator(mode="after")
    def _keys_fit_the_status(self) -> Self:
        if self.status == "suppressed" and self.until is None:
            raise ValueError("until must be a date with status suppressed")
        if self.status == "open" and self.until is not None:
            raise ValueError("until must be absent with status open")
        if (self.status == "assigned") != bool(self.to):
            raise ValueError("to must be a name with status assigned, and absent with others")
        if self.status not in ("open", "assigned") and not self.upstream:
            raise ValueError(f"upstream must name an issue or a fix with status {self.status}")
        return self

    def holds(self, today: date) -> bool:
        """Return whether nights do not report the finding today, because of its status."""
        return self.status != "open" and (self.until is None or today < self.until)

    @property
    def standing(self) -> str:
        """Return status, assignee, end date and upstream link of a finding as text."""
        status = "fixed upstream" if self.status == "fixed" else self.status
        whom = f" to {self.to}" if self.to else ""
        until = f" until {self.until}" if self.until is not None else ""
        return f"{status}{whom}{until}{f', {self.upstream}' if self.upstream else ''}"


class Sighting(Value):
    """The nights that saw a finding: first, last and number."""

    first: date
    last: date
    nights: int


_SIGHTINGS = TypeAdapter(dict[str, Sighting])


def read_known(folder: Path) -> dict[str, KnownFinding]:
    """Return the known findings of a folder by fingerprint; an empty dict without a folder.

    Raises:
        ScenarioError: a file is invalid; the message names file and line.
    """
    return {bug: finding for bug, (finding, _) in read_files(folder).items()}


def read_files(folder: Path) -> dict[str, tuple[KnownFinding, Path]]:
    """Return the known findings of a folder by fingerprint, each with its file.

    Raises:
        ScenarioError: as `read_known`.
    """
    known: dict[str, tuple[KnownFinding, Path]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.name.endswith(KNOWN_SUFFIX):
            raise ScenarioError(f"{path}: names of files of known findings end in {KNOWN_SUFFIX}")
        finding = known_in(path)
        if finding.bug in known:
            raise ScenarioError(f"{path}: {finding.bug!r} is known already, from {known[finding.bug][1]}")
        known[finding.bug] = finding, path
    return known


def known_in(path: Path) -> KnownFinding:
    """Read the known finding in a file.

    Raises:
        ScenarioError: as `read_known`.
    """
    return _parse(_text_of(path), path)


def edit_known(path: Path, changes: Mapping[str, str | None]) -> KnownFinding:
    """Change keys in a known finding's file, which is created if missing.

    Other keys and comments stay.

    The caller holds the lock of `editing`.

    Raises:
        ScenarioError: the file is invalid before or after the change; nothing is written.
        StoreError: it cannot be written.
    """
    if path.exists():
        text = _text_of(path)
        _parse(text, path)
        text = with_values(text, changes)
    else:
        text = "".join(f"{key}: {scalar(value)}\n" for key, value in changes.items() if value is not None)
    finding = _parse(text, path)
    with storing(path):
        write_inside(path.parent, path.name, text)
    return finding


def _text_of(path: Path) -> str:
    try:
        return read_file(path, BYTES_MAX).decode("utf-8")
    except OSError as error:
        raise ScenarioError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from error


def _parse(text: str, path: Path) -> KnownFinding:
    """Return the known finding in the text of a file."""
    data, lines = strict_yaml.read(text, str(path))
    try:
        return KnownFinding.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = tuple(problem["loc"])
        key = f"{'.'.join(map(str, where))}: " if where else ""
        message, allowed = problem["msg"].removeprefix("Value error, "), ", ".join(KnownFinding.model_fields)
        raise ScenarioError(f"{path}:{lines.get(where, 1)}: {key}{message}; keys are {allowed}") from error


def read_seen(folder: Path) -> dict[str, Sighting]:
    """Return the sightings of earlier nights by fingerprint.

    Raises:
        ScenarioError: the file was altered.
    """
    path = folder / SEEN
    try:
        return _SIGHTINGS.validate_json(read_file(path, CAMPAIGN_BYTES_MAX))
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ScenarioError(f"{path}: cannot be read: {reason}; remove it to count the nights anew") from error


def keep_seen(folder: Path, bugs: Iterable[str], today: date) -> dict[str, Sighting]:
    """Record findings as seen today, at most once a day; return all sightings.

    Raises:
        ScenarioError: as `read_seen`.
        StoreError: the folder cannot be written.
    """
    with editing(folder):
        seen = read_seen(folder)
        for bug in bugs:
            before = seen.get(bug, Sighting(first=today, last=date.min, nights=0))
            # A last sighting far in the future comes from a wrong clock, one on the next day from another time zone.
            if before.last < today or before.last - today > _DAY:
                seen[bug] = Sighting(first=min(before.first, today), last=today, nights=before.nights + 1)
        ordered = {bug: seen[bug] for bug in sorted(seen)}
        assert all(each.first <= each.last for each in ordered.values()), "what is seen first is not seen last"
        with storing(folder / SEEN):
            write_inside(folder, SEEN, _SIGHTINGS.dump_json(ordered, indent=1).decode() + "\n")
    return ordered
