"""Count a night's regression traces: used by the report, the progress line and the page."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_FINDINGS = ("diverged", "crashed", "stuck")
_LOST = "lost"


@dataclass(frozen=True, slots=True)
class RegressionCounts:
    """Numbers of regressions; a regression is a trace of known bugs that a night runs again.

    A regression has up to two runs: with its faults switched on, where the device has them, and on the clean engine,
    where that can run the trace. It is judged once each of its runs has a verdict. `faulty` and `clean` are the judged
    runs of each kind; in `found` of them the faults were found, in `agreed` of them the clean engine agreed.
    """

    planned: int
    judged: int
    faulty: int
    found: int
    clean: int
    agreed: int


def regression_counts(planned: Mapping[str, Iterable[str]], seen: Mapping[str, tuple[bool, str]]) -> RegressionCounts:
    """Return the counts of regressions, given the job keys of each, and faults and verdict of each job.

    A job that was lost has no verdict. `seen` has, by job key, whether faults were on, and the kind of the verdict.
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
