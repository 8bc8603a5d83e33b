"""News of a hunt: a finding is discovered, confirmed or dropped."""

from dataclasses import dataclass
from typing import TypeAlias

from cluster.storage.hunts import FindingState
from workers.record.verdict import Lost
from workers.shrink.shrinker import Finding


@dataclass(frozen=True, slots=True)
class NewFinding:
    """News: a trace has a finding that is new in this hunt."""

    trace: int
    bug: str
    verdict: Finding


@dataclass(frozen=True, slots=True)
class ConfirmedFinding:
    """News: a run with slower kernels has confirmed a finding."""

    trace: int
    bug: str


@dataclass(frozen=True, slots=True)
class DroppedFinding:
    """News: an unconfirmed finding did not reproduce and is dropped."""

    trace: int
    bug: str
    reason: str


News: TypeAlias = NewFinding | ConfirmedFinding | DroppedFinding


def news_of(before: FindingState, after: FindingState) -> list[News]:
    """Return the news about a finding, from its state before and after."""
    if after.judgement is not None and isinstance(after.judgement.verdict, Lost):
        return [] if before.is_refuted else [DroppedFinding(after.first, after.bug, after.judgement.verdict.reason)]
    if before.is_unconfirmed and not after.is_unconfirmed:
        return [ConfirmedFinding(after.first, after.bug)]
    return []
