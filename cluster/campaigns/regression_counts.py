"""Counts of a night's regression traces, for the report, the progress line and the page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FINDINGS = ("diverged", "crashed", "stuck")
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class RegressionCounts:
    """Counts of regressions (traces of known faults, replayed each night).

    It has up to two runs: with its faults on, if the device supports them, and on the clean engine, if that can run the
    trace. It is judged once each of its runs has a verdict. `faulty` and `clean` count the judged runs of each kind,
    `found` the runs that found their faults, `agreed` the runs on which the clean engine agreed.
    """

    planned: int
    judged: int
    faulty: int
    found: int
    clean: int
    agreed: int


def regression_counts(planned: Mapping[str, Iterable[str]], seen: Mapping[str, tuple[bool, str]]) -> RegressionCounts:
    """Return the counts of regressions, from their job keys and the verdicts so far.

    `seen` has, by job key, whether faults were on, and the kind of the verdict. A lost job has no verdict.
    """
    judged = {key for key, (_, kind) in seen.items() if kind != _LOST}
    runs = [(key, *seen[key]) for keys in planned.values() for key in dict.fromkeys(keys) if key in judged]
    faulty = [kind for _, has_faults, kind in runs if has_faults]
    clean = [kind for _, has_faults, kind in runs if not has_faults]
    return RegressionCounts(
        planned=len(planned),
        judged=sum(judged.issuperset(keys) for keys in planned.values()),
        faulty=len(faulty),
        found=sum(kind in _FINDINGS for kind in faulty),
        clean=len(clean),
        agreed=clean.count("agreed"),
    )
