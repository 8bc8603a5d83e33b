"""Coverage: under which policies traces with each kind of event were judged in each plane."""

from collections.abc import Iterable
from typing import TypeAlias

from scenarios.trace import Trace

# The policies that a trace was run under, separated by spaces; a kind of event; a plane: the number of traces.
Coverage: TypeAlias = dict[str, dict[str, dict[str, int]]]


def add_trace(coverage: Coverage, policies: Iterable[str], trace: Trace, planes: Iterable[str]) -> None:
    """Count a trace that was run under some policies and compared in some planes."""
    events = coverage.setdefault(" ".join(policies), {})
    compared = tuple(planes)
    for kind in sorted({event.do for event in trace.events}):
        counts = events.setdefault(kind, {})
        for plane in compared:
            counts[plane] = counts.get(plane, 0) + 1


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
