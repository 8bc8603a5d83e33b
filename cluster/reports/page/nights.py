"""States of a report's findings over nights: new, seen before, or known."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from cluster.campaigns.recurrence import Recurrence, recurrence
from cluster.storage.known import KnownFinding, Sighting, read_known, read_seen


@dataclass(frozen=True, slots=True)
class Nights:
    """Findings of a report, classified by a folder of known findings."""

    result: Recurrence
    known: dict[str, KnownFinding]
    seen: dict[str, Sighting]

    def state(self, bug: str) -> Literal["new", "seen before", "known"]:
        """Return a finding's state over nights: new, seen before or known."""
        return "known" if bug in self.result.known else "seen before" if bug in self.result.again else "new"

    def description(self, bug: str) -> str:
        """Return the triage state of a finding and the nights that saw it, in words."""
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
    """Return the states of a report's findings from a folder of known findings.

    None without such a folder.

    No finding is gone unless the report is about a night with a verdict (`is_night`).

    Raises:
        ScenarioError: a file in the folder is invalid.
    """
    known, seen = read_known(folder), read_seen(folder)
    if not known and not folder.is_dir():
        return None
    return Nights(recurrence(bugs, known, seen, today, is_night), known, seen)
