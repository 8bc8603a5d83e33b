"""Faults in reused names: a request has the name of one that has ended."""

from collections.abc import Mapping
from dataclasses import replace

from workers.engine.input_batch import Key, Row
from workers.engine.parts import Parts
from workers.faults.fault import Fault, Reached
from workers.kernels.sentinels import NO_PREVIOUS_ROW


def _rows_known_by_name(parts: Parts, reached: Reached) -> Parts:
    newest: dict[str, Key] = {}

    def previous_row(row: Row, previous: Mapping[Key, int]) -> int:
        name = row.plan.request.name
        found, before = parts.previous_row(row, previous), newest.get(name, row.key)
        newest[name] = row.key
        if found == NO_PREVIOUS_ROW and before[0] != row.key[0] and before in previous:
            reached()
            return previous[before]
        return found

    return replace(parts, previous_row=previous_row)


FAULTS = (
    Fault(
        id="vllm-id-reuse",
        source="vllm, request ids that are not made unique (derived from its source; no report)",
        symptom="a new request is fed what was sampled for an earlier request of its name",
        trigger="a request ends, and another of its name joins the very next step",
        plane="counts",
        apply=_rows_known_by_name,
    ),
)
