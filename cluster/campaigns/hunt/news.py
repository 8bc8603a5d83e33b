"""News of a hunt: a finding was discovered, confirmed or dropped."""

from dataclasses import dataclass
from typing import TypeAlias

from cluster.storage.hunts import FindingState
from workers.record.verdict import Lost
from workers.shrink.shrinker import Finding


@dataclass(frozen=True, slots=True)
class Met:
    """A trace shows a bug that is new in this hunt; `verdict` says whether it is confirmed."""

    trace: int
    bug: str
    verdict: Finding


@dataclass(frozen=True, slots=True)
class Confirmed:
    """An unconfirmed finding is now confirmed."""

    trace: int
    bug: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """An unconfirmed finding did not occur again and is dropped."""

    trace: int
    bug: str
    reason: str


News: TypeAlias = Met | Confirmed | Dropped


def news_of(before: FindingState, after: FindingState) -> list[News]:
    """Return the news that a change of a finding's state makes."""
    if after.judgement is not None and isinstance(after.judgement.verdict, Lost):
        return [] if before.is_refuted else [Dropped(after.first, after.bug, after.judgement.verdict.reason)]
    if before.is_unconfirmed and not after.is_unconfirmed:
        return [Confirmed(after.first, after.bug)]
    return []
