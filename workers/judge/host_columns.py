"""Compare the host's observations with expected columns: a value per request or batch row."""

from collections.abc import Sequence
from typing import Any

from workers.oracle.expected_captures import SCRATCH, first_difference
from workers.oracle.prefix_cache import CachedBlocks
from workers.oracle.truth import RowTruth, Truth
from workers.record.evidence import Difference, Violation, fact, plain_value, violation
from workers.record.observation import VARIABLES, Observation
from workers.record.rules import Rule


def cached_difference(cache: CachedBlocks, names: dict[int, int], observed: Observation) -> Difference | None:
    """Return the first difference in blocks' reference counts, hashes or eviction order.

    An engine may use any hash function that has one hash per prefix: `names` keeps the hash seen for each prefix.
    """
    hashes = observed.values.get("cached_hashes", ())
    for prefix, name in zip(cache.prefix_of, hashes, strict=False):
        if prefix not in names and name not in names.values():
            names[prefix] = name
    columns: dict[str, Sequence[object]] = {
        "block_references": cache.num_holders,
        "cached_hashes": [names.get(prefix) for prefix in cache.prefix_of],
        "idle_blocks": cache.idle,
    }
    for variable, wanted in columns.items():
        seen = observed.values.get(variable, ())
        if seen != tuple(wanted):
            at = next((at for at, (a, b) in enumerate(zip(seen, wanted, strict=False)) if a != b), len(wanted))
            due, there = (fact("at_index", value=tuple(each[at : at + 1]), index=at) for each in (wanted, seen))
            if wanted[at : at + 1] == [None]:
                due = fact("hash_at_index", index=at)
            return difference(variable, observed.step, due, there)
    return None


def processed_columns(rows: Sequence[RowTruth], delivered: list[tuple[int, ...]]) -> dict[str, list[Any]]:
    """Return the expected results of a processed step by row; ended requests have no counts."""
    truths = [row.truth for row in rows]
    ends = [truth.finish_reason for truth in truths]
    computed: list[Any] = [truth.sched_computed for truth in truths]
    placeholders: list[Any] = [truth.sched_placeholders for truth in truths]
    for index, end in enumerate(ends if any(ends) else ()):
        if end is not None:
            computed[index] = placeholders[index] = SCRATCH
    return {"tokens": delivered, "finish_reason": ends, "computed": computed, "placeholders": placeholders}


def host_drafts(rows: Sequence[RowTruth]) -> list[Any]:
    """Return the draft tokens expected on the host, for live rows that sampled a token."""
    return [
        row.drafted.proposed
        if row.valid and row.truth.finish_reason is None and row.row.epoch == row.truth.epoch
        else SCRATCH
        for row in rows
    ]


def compare_columns(
    order: tuple[int, ...],
    owners: Sequence[Truth | RowTruth],
    columns: dict[str, list[Any]],
    observed: Observation,
) -> Difference | None:
    """Return the first observed value that differs from its expected column, or None."""
    _, step, requests, values, _ = observed
    if order != requests:
        return difference(
            "log", step, fact("requests", requests=order), violation(Rule.OBSERVED_ROWS, requests=requests)
        )
    if {**values, **columns} == values:
        return None
    for variable, wanted in columns.items():
        actual = values.get(variable)
        if actual == wanted:
            continue
        if actual is None or len(actual) != len(wanted):
            return difference(variable, step, fact("num_values", count=len(wanted)), actual)
        index = first_difference(wanted, actual)
        if index is not None:
            owner = owners[index]
            name = owner.truth.name if isinstance(owner, RowTruth) else owner.name
            return difference(variable, step, wanted[index], actual[index], (name, owner.commit_key, None))
    return None


def difference(
    variable: str,
    step: int,
    expected: object,
    actual: object,
    where: tuple[str, str, int | None] = ("", "", None),
) -> Difference:
    """Build the `Difference` of one variable, with the category of state (plane) it belongs to.

    `where` is its request, its commit key and its position, if known.
    """
    request, commit, position = where
    return Difference(
        plane=VARIABLES[variable].plane if variable in VARIABLES else "books",
        variable=variable,
        request=request,
        commit=commit,
        step=step,
        position=position,
        expected=plain_value(expected),
        actual=actual if isinstance(actual, Violation) else plain_value(actual),
    )
