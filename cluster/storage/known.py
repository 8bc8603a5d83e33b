"""Known findings: those expected or suppressed by people, and the dates on which nights saw each finding.

A folder holds both: a file `NAME.known.yaml` a known finding, written by people, and `seen.json`, written by nights.
"""

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Literal, Self

from pydantic import TypeAdapter, ValidationError, model_validator

from cluster.storage.artefact import write_atomically
from cluster.storage.errors import storing
from scenarios import strict_yaml
from scenarios.codec import KNOWN_SUFFIX, SUFFIX
from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError
from workers.shrink.fingerprint import known_name
from workers.targets.registry import kind_of

SEEN = "seen.json"


class KnownFinding(Value):
    """A finding that a night need not report as new: `bug` is its fingerprint, `upstream` says where it is dealt with.

    An `expected` one is known for good; a `suppressed` one until the day before `until`.
    """

    bug: str
    upstream: str
    status: Literal["expected", "suppressed"]
    until: date | None = None
    note: str = ""

    @model_validator(mode="after")
    def _ends_if_suppressed(self) -> Self:
        if (self.status == "suppressed") != (self.until is not None):
            raise ValueError("until is a date with status suppressed, and absent with status expected")
        return self

    def holds(self, today: date) -> bool:
        """Whether it is known today."""
        return self.until is None or today < self.until


class Sighting(Value):
    """The nights in which a finding was seen: first, last and number."""

    first: date
    last: date
    nights: int


_SIGHTINGS = TypeAdapter(dict[str, Sighting])


def known_findings(folder: Path, engine: str) -> dict[str, KnownFinding]:
    """Return the known findings of an engine by fingerprint: its own known bugs, and those of a folder.

    Raises:
        ScenarioError: as `read_known`.
    """
    own = {
        known_name(bug.name): KnownFinding(
            bug=known_name(bug.name), upstream=bug.upstream, status="expected", note=bug.note
        )
        for bug in kind_of(engine).known_bugs()
    }
    return own | read_known(folder)


def read_known(folder: Path) -> dict[str, KnownFinding]:
    """Return the known findings of a folder by fingerprint; none where there is no folder.

    Raises:
        ScenarioError: a file is not what it must be; the message names file and line.
    """
    known: dict[str, KnownFinding] = {}
    files: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        if not path.name.endswith(KNOWN_SUFFIX):
            raise ScenarioError(f"{path}: names of files of known findings end in {KNOWN_SUFFIX}")
        finding = _read(path)
        if finding.bug in known:
            raise ScenarioError(f"{path}: {finding.bug!r} is known already, from {files[finding.bug]}")
        known[finding.bug], files[finding.bug] = finding, path
    return known


def _read(path: Path) -> KnownFinding:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from error
    data, lines = strict_yaml.read(text, str(path))
    try:
        return KnownFinding.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = tuple(problem["loc"])
        key = f"{'.'.join(map(str, where))}: " if where else ""
        allowed = ", ".join(KnownFinding.model_fields)
        raise ScenarioError(f"{path}:{lines.get(where, 1)}: {key}{problem['msg']}; keys are {allowed}") from error


def read_seen(folder: Path) -> dict[str, Sighting]:
    """Return the sightings of earlier nights by fingerprint.

    Raises:
        ScenarioError: the file was altered.
    """
    path = folder / SEEN
    try:
        return _SIGHTINGS.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise ScenarioError(
            f"{path}: cannot be read: {reason}; remove it, and the nights begin to count anew"
        ) from error


def keep_seen(folder: Path, bugs: Iterable[str], today: date) -> dict[str, Sighting]:
    """Record that some findings were seen today, once a day; return all sightings."""
    seen = read_seen(folder)
    for bug in bugs:
        before = seen.get(bug, Sighting(first=today, last=date.min, nights=0))
        if before.last < today:
            seen[bug] = Sighting(first=min(before.first, today), last=today, nights=before.nights + 1)
    ordered = {bug: seen[bug] for bug in sorted(seen)}
    assert all(each.first <= each.last for each in ordered.values()), "what is seen first is not seen last"
    with storing(folder / SEEN):
        write_atomically(folder / SEEN, _SIGHTINGS.dump_json(ordered, indent=1).decode() + "\n")
    return ordered
