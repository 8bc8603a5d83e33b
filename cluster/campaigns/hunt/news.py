"""News of a hunt: each finding when it is met, and again when it is confirmed or dropped."""

from dataclasses import dataclass
from typing import TypeAlias

from cluster.storage.hunts import FindingState
from workers.record.verdict import Lost
from workers.shrink.shrinker import Finding


@dataclass(frozen=True, slots=True)
class Met:
    """A trace shows a bug that no trace of the hunt has shown before; `verdict` says whether it is confirmed."""

    trace: int
    bug: str
    verdict: Finding


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A finding that was unconfirmed is confirmed."""

    trace: int
    bug: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A finding turned out to be none."""

    trace: int
    bug: str
    reason: str


News: TypeAlias = Met | Confirmed | Dropped


def news_of(before: FindingState, after: FindingState) -> list[News]:
    """Return what a result changed in a finding that its readers have to know."""
    if after.judgement is not None and isinstance(after.judgement.verdict, Lost):
        return [] if before.is_refuted else [Dropped(after.first, after.bug, after.judgement.verdict.reason)]
    if before.is_unconfirmed and not after.is_unconfirmed:
        return [Confirmed(after.first, after.bug)]
    return []
