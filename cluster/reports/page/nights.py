"""Findings of a report over nights: new, seen before or known, from a folder of known findings."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from cluster.campaigns.recurrence import Recurrence, recurrence
from cluster.storage.known import KnownFinding, Sighting, read_known, read_seen


@dataclass(frozen=True, slots=True)
class Nights:
    """Findings of a report, compared with a folder of known findings."""

    result: Recurrence
    known: dict[str, KnownFinding]
    seen: dict[str, Sighting]

    def state(self, bug: str) -> Literal["new", "seen before", "known"]:
        """Return the state of a finding of the report."""
        return "known" if bug in self.result.known else "seen before" if bug in self.result.again else "new"

    def description(self, bug: str) -> str:
        """Return what is known of a finding: where it is dealt with, until when, and when it was seen."""
        parts = []
        if bug in self.known:
            entry = self.known[bug]
            parts += [entry.standing, *([entry.note] if entry.note else [])]
        if bug in self.seen:
            sighting = self.seen[bug]
            nights = f"{sighting.nights} {'night' if sighting.nights == 1 else 'nights'}"
            parts.append(f"first seen {sighting.first}, last seen {sighting.last}, in {nights}")
        return "; ".join(parts)


def read_nights(folder: Path, bugs: Sequence[str], today: date, is_night: bool = True) -> Nights | None:
    """Return the state of a report's findings by the known findings of a folder; None if nothing is known.

    No finding is gone unless the report is about a night that judged something (`is_night`).

    Raises:
        ScenarioError: a file in it is not what it must be.
    """
    known, seen = read_known(folder), read_seen(folder)
    if not known and not folder.is_dir():
        return None
    return Nights(recurrence(bugs, known, seen, today, is_night), known, seen)
