"""Recurrence of findings over nights: new, seen before, known, or not met any more."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date

from cluster.storage.known import KnownFinding, Sighting
from scenarios.spec import Value


class Recurrence(Value):
    """Tonight's findings by fingerprint: new, seen again, known; and those not found again.

    `again` were seen on earlier nights and are not recorded as known. `gone` were seen on earlier nights and not on
    this one, if it judged anything.
    """

    new: tuple[str, ...]
    again: tuple[str, ...]
    known: tuple[str, ...]
    gone: tuple[str, ...]


def recurrence(
    bugs: Sequence[str],
    known: Mapping[str, KnownFinding],
    seen: Mapping[str, Sighting],
    today: date,
    is_judged: bool = True,
) -> Recurrence:
    """Classify tonight's findings by the known findings and by earlier nights.

    `seen` has the findings of earlier nights, and may include tonight's.

    Without a verdict tonight, no finding is gone.
    """
    tonight = tuple(dict.fromkeys(bugs))
    held = tuple(bug for bug in tonight if bug in known and known[bug].holds(today))
    before = {bug for bug, sighting in seen.items() if sighting.first < today}
    again = tuple(bug for bug in tonight if bug not in held and bug in before)
    new = tuple(bug for bug in tonight if bug not in held and bug not in before)
    gone = tuple(sorted(before - set(tonight))) if is_judged else ()
    return Recurrence(new=new, again=again, known=held, gone=gone)


def recurrence_lines(
    result: Recurrence, known: Mapping[str, KnownFinding], seen: Mapping[str, Sighting], is_night: bool = True
) -> Iterator[str]:
    """Yield report lines on new, earlier and known findings; for a night, also on missing ones."""
    counts = f"{len(result.new)} new, {len(result.again)} seen before, {len(result.known)} known"
    gone = f", {len(result.gone)} not met tonight" if is_night else ""
    yield f"findings over nights: {counts}{gone}"
    yield from (f"  NEW    {bug}{_ended(bug, known)}" for bug in result.new)
    yield from (f"  again  {bug}: {_sighted(seen[bug])}{_ended(bug, known)}" for bug in result.again)
    yield from (f"  known  {bug}: {known[bug].standing}" for bug in result.known)
    for bug in result.gone if is_night else ():
        yield f"  not met {bug}: {_sighted(seen[bug])}{f', {known[bug].standing}' if bug in known else ''}"


def _sighted(sighting: Sighting) -> str:
    nights = f"{sighting.nights} {'night' if sighting.nights == 1 else 'nights'}"
    return f"first seen {sighting.first}, last seen {sighting.last}, {nights}"


def _ended(bug: str, known: Mapping[str, KnownFinding]) -> str:
    return f" ({known[bug].standing})" if bug in known else ""
