"""Coverage on the report page: number of runs by event and compared state category (plane).

A cell has a count per policy.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from scenarios.capabilities import EVENTS
from scenarios.events import Schedule
from workers.record.evidence import RACES
from workers.run.coverage import Coverage
from workers.run.schedules import all_schedules
from workers.targets.registry import known_engines, target_kind

# Runs by event, plane and policy.
Cells: TypeAlias = Counter[tuple[str, str, str]]
POLICIES: tuple[str, ...] = get_args(Schedule.model_fields["policy"].annotation)
_STEPS = 5


@dataclass(frozen=True, slots=True)
class Cell:
    """Numbers of runs with one event and one compared state category, by schedule policy.

    The shade is 0 for none, and 5 for the maximum of all cells.
    """

    runs: Mapping[str, int]
    shade: int

    @property
    def total(self) -> int:
        """Return the number of runs under all policies."""
        return sum(self.runs.values())


@dataclass(frozen=True, slots=True)
class Matrix:
    """Numbers of runs: a row per event, a column per compared state category (plane).

    `policies` counts the runs under each policy; `impossible` are events that no tested engine supports.
    """

    planes: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    policies: Mapping[str, int]
    impossible: frozenset[str] = frozenset()


def add_coverage(cells: Cells, coverage: Coverage) -> None:
    """Add the traces of a hunt to the cells, once for each policy under which they ran."""
    for policies, events in coverage.items():
        for kind, planes in events.items():
            for plane, count in planes.items():
                for policy in policies.split():
                    cells[kind, plane, policy] += count


def add_result(cells: Cells, judgement: Mapping[str, Any]) -> None:
    """Add the schedules of one judgement to the cells, by event, state category and policy."""
    runs = policies_of(judgement)
    planes = judgement["verdict"]["stats"].get("planes", ())
    for kind in {event["do"] for event in judgement["trace"]["events"]}:
        for plane in planes:
            # The race detector watches only the first schedule of a sweep.
            for policy, count in runs.items() if plane != RACES else [(next(iter(runs)), 1)]:
                cells[kind, plane, policy] += count


def policies_of(judgement: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many schedules of a judgement have each policy."""
    num_schedules, own = judgement["schedules"], judgement["trace"]["schedule"]["policy"]
    if num_schedules == 1 or judgement["verdict"]["kind"] not in ("agreed", "vacuous"):
        return Counter([outcome["schedule"]["policy"] for outcome in judgement["outcomes"]] or [own])
    return Counter(schedule.policy for schedule in all_schedules()[:num_schedules])


def matrix_of(cells: Cells, engines: Sequence[str] = ()) -> Matrix:
    """Return the matrix of events by compared state categories, for campaigns of these engines."""
    planes = tuple(sorted({plane for _, plane, _ in cells}))
    totals: Counter[tuple[str, str]] = Counter()
    for (kind, plane, _), count in cells.items():
        totals[kind, plane] += count
    most = max(totals.values(), default=0)
    rows = []
    for kind in EVENTS:
        row = []
        for plane in planes:
            runs = {policy: cells[kind, plane, policy] for policy in POLICIES if cells[kind, plane, policy]}
            total = totals[kind, plane]
            row.append(Cell(runs, -(-_STEPS * total // most) if total else 0))
        rows.append((kind, tuple(row)))
    by_policy = {policy: max((cells[each] for each in cells if each[2] == policy), default=0) for policy in POLICIES}
    covered = {kind for kind, _, _ in cells}
    impossible = frozenset(kind for kind in EVENTS if kind not in covered and not _is_possible(kind, engines))
    return Matrix(planes, tuple(rows), by_policy, impossible)


def _is_possible(kind: str, engines: Sequence[str]) -> bool:
    """Return whether one of some engines supports an event.

    An unknown engine is assumed to support all.
    """
    return not engines or any(
        engine not in known_engines() or kind in ("submit", *target_kind(engine).capabilities.events)
        for engine in engines
    )
