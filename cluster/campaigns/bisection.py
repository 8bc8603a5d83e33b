"""Bisection: find the release of an engine in which a bug appeared or was fixed.

The newest and the oldest release are tried first. If only one of them has the bug, the range between them is halved. A
skipped release is replaced by the nearest one that is not tried yet.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

# `skipped`: the release cannot be installed or run, or it shows another failure than the bug.
Status: TypeAlias = Literal["bad", "good", "skipped"]


class Change(NamedTuple):
    """Two releases, the older one first, exactly one with the bug.

    No untried release lies between them.
    """

    older: str
    newer: str


class Bisection:
    """Finds the two successive releases between which a bug appears or is fixed.

    Releases are oldest first; `known` has the status of the tried ones.
    """

    def __init__(self, versions: Sequence[str]) -> None:
        assert len(versions) == len(set(versions)) > 0, "releases, each once"
        self.versions = tuple(versions)
        self.known: dict[str, Status] = {}

    def record(self, version: str, status: Status) -> None:
        """Store the status of a tried release: it has the bug, does not have it, or was skipped."""
        assert version in self.versions, f"{version} is among the releases"
        assert version not in self.known, f"{version} was tried before"
        self.known[version] = status

    def next(self) -> str | None:
        """Return the release to try next, None when the search is over."""
        for end in (self._first_conclusive(reversed(self.versions)), self._first_conclusive(self.versions)):
            if end is not None and end not in self.known:
                return end
        change = self.change()
        if change is None:
            return None
        low, high = self.versions.index(change.older), self.versions.index(change.newer)
        left = [index for index in range(low + 1, high) if self.versions[index] not in self.known]
        return self.versions[min(left, key=lambda index: (abs(2 * index - low - high), index))] if left else None

    def change(self) -> Change | None:
        """Return the newest pair of tried releases with different status, or None."""
        tried = [version for version in self.versions if self.known.get(version) in ("bad", "good")]
        changes = [Change(*pair) for pair in pairwise(tried)]
        return next((each for each in reversed(changes) if self.known[each.older] != self.known[each.newer]), None)

    def _first_conclusive(self, versions: Iterable[str]) -> str | None:
        return next((version for version in versions if self.known.get(version) != "skipped"), None)
