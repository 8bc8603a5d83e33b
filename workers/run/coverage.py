"""Coverage: number of traces by schedule policy, event kind and compared state category.

A *policy* is a rule by which a schedule orders streams ("eager", "lazy"); a *plane* is a kind of checked values ("kv").
"""

from collections.abc import Iterable
from typing import TypeAlias

from scenarios.trace import Trace

# Number of traces, by policies (separated by spaces), kind of event, and plane.
Coverage: TypeAlias = dict[str, dict[str, dict[str, int]]]


def coverage_of(policies: Iterable[str], trace: Trace, planes: Iterable[str]) -> Coverage:
    """Return the coverage of one trace, by schedule policies, event kinds and compared planes."""
    compared = tuple(planes)
    return {" ".join(policies): {kind: dict.fromkeys(compared, 1) for kind in sorted({e.do for e in trace.events})}}


def joined_coverage(parts: Iterable[Coverage]) -> Coverage:
    """Return the sum of several coverages."""
    total: Coverage = {}
    for part in parts:
        for policies, events in part.items():
            into = total.setdefault(policies, {})
            for kind, planes in events.items():
                counts = into.setdefault(kind, {})
                for plane, count in planes.items():
                    counts[plane] = counts.get(plane, 0) + count
    return total
