"""Command `triage`: status of findings, and until when nights need not report them."""

import difflib
from contextlib import nullcontext
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, get_args

import typer

from cluster.campaigns.exit_codes import EXIT_AGREED
from cluster.cli.finding_history import known_folder
from cluster.cli.inputs import InputError, check_engine
from cluster.cli.options import Engine, Known
from cluster.reports.page.campaign import read_campaigns
from cluster.reports.terminal import show
from cluster.storage.known import KnownFinding, Status, edit_known, known_in, read_files, read_known, read_seen
from cluster.storage.lock import editing
from scenarios.codec import KNOWN_SUFFIX
from workers.targets.target import SPECSTORM

_NAME_MAX = 60


def triage(
    which: Annotated[
        str | None, typer.Argument(metavar="[FINDING]", help="Fingerprint or file (default: list all).")
    ] = None,
    *,
    state: Annotated[
        Status | None, typer.Option(help="Set the status: only open findings are reported; fixed means fixed upstream.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Assign the finding to NAME.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DATE", help="Report the finding again from this day on.")
    ] = None,
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="Link the upstream issue or pull request.")
    ] = None,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="Add a note.")] = None,
    campaign: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Read the finding from this campaign if no night has seen it.")
    ] = None,
    known: Known = None,
    engine: Engine = SPECSTORM,
) -> int:
    """Show or change the status of findings: open, assigned, fixed, expected or suppressed."""
    folder = known_folder(known, check_engine(engine))
    given = {"status": state, "to": to, "until": until, "upstream": upstream, "note": note}
    changes: dict[str, str | None] = {key: value for key, value in given.items() if value is not None}
    _check_until(until)
    if not which:
        if changes or which is not None:
            raise InputError("no finding given; give its fingerprint or file (`specstorm triage` lists all)")
        show(*_lines_of(folder))
        return EXIT_AGREED
    place = Path(which).parent if which.endswith(KNOWN_SUFFIX) else folder
    # Read and changed in one lock, so that no other process changes the folder in between.
    with editing(place) if changes else nullcontext():
        path, before = _found(which, folder, campaign)
        finding = edit_known(path, _changed_keys(before, which, changes)) if changes else before
    if finding is None:
        raise InputError(f"{which!r} has no status yet; give one with --state {'|'.join(get_args(Status))}")
    where = f"{path}: " if path.exists() else ""
    show(f"{where}{finding.bug}: {finding.standing}{f'; {finding.note}' if finding.note else ''}")
    return EXIT_AGREED


def _check_until(until: str | None) -> None:
    try:
        day = None if until is None else date.fromisoformat(until)
    except ValueError as error:
        raise InputError(f"--until is {until!r}; give a date such as 2027-01-31") from error
    if day is not None and day <= date.today():
        raise InputError(f"--until is {until}, which is not in the future; give a day after {date.today()}")


def _found(which: str, folder: Path, campaign: Path | None) -> tuple[Path, KnownFinding | None]:
    """Return the file of a finding's status, which may not exist yet, and the status.

    None without a status.

    Raises:
        InputError: the file does not exist, or no night and no campaign has seen the finding.
    """
    path = Path(which)
    if which.endswith(KNOWN_SUFFIX):
        if not path.is_file():
            raise InputError(f"{which}: the file does not exist; give the file or the fingerprint of a known finding")
        return path, known_in(path)
    files = read_files(folder)
    if which in files:
        finding, path = files[which]
        return path, finding
    met = [] if campaign is None else [bug for each in read_campaigns(campaign) for bug in each.findings]
    seen = [*read_seen(folder), *met]
    if which not in seen:
        near = difflib.get_close_matches(which, seen, n=1, cutoff=0.8)
        where = f"by a night of {folder}" if campaign is None else f"by a night of {folder} or in {campaign}"
        hint = f"did you mean {near[0]!r}?" if near else "name the campaign that met it with --campaign DIR"
        raise InputError(f"no finding {which!r} was seen {where}; {hint}")
    return _new_path(folder, which), None


def _new_path(folder: Path, bug: str) -> Path:
    words = "".join(char if char.isascii() and char.isalnum() else " " for char in bug).split()
    name = "_".join(words)[:_NAME_MAX] or "finding"
    path = folder / f"{name}{KNOWN_SUFFIX}"
    # Two fingerprints may differ only in characters that a file name drops.
    return (
        folder / f"{name}-{blake2b(bug.encode(), digest_size=4).hexdigest()}{KNOWN_SUFFIX}" if path.exists() else path
    )


def _changed_keys(before: KnownFinding | None, bug: str, changes: dict[str, str | None]) -> dict[str, str | None]:
    """Return the keys to change in a known finding's file, with their values.

    A new status also clears `to` and `until` unless they are given.
    """
    if before is None and "status" not in changes:
        raise InputError(f"{bug!r} has no status yet; give one with --state")
    if before is None:
        return {"bug": bug, **changes}
    anew = {"to": None, "until": None} if changes.get("status", before.status) != before.status else {}
    return {**anew, **changes}


def _lines_of(folder: Path) -> list[str]:
    """Return one line for each finding that is known or was seen."""
    known, seen = read_known(folder), read_seen(folder)
    today = date.today()
    lines = []
    for bug in sorted({*known, *seen}):
        standing = known[bug].standing if bug in known else "no status"
        counts = "" if bug in known and known[bug].holds(today) else " (counts)"
        sighted = f"; seen {seen[bug].first} to {seen[bug].last}" if bug in seen else ""
        lines.append(f"{bug}: {standing}{counts}{sighted}")
    return lines or [f"{folder} has no known findings and no sightings"]
