"""Build histories for tests of judges: typed step values with defaults."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from scenarios.sampling import Output
from scenarios.spec import ENGINE, EngineName
from workers.judge.history import Blocks, History
from workers.judge.judge import End, HistoryJudge
from workers.record.engine_records import EngineRecord, ScheduledValues
from workers.record.evidence import Difference

_SHOWN: TypeAdapter[EngineRecord] = TypeAdapter(EngineRecord)
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "opened": {"vocab_size": 32, "block_size": 4, "state_sizes": []},
    "scheduled": {"begun": [], "blocks": [], "states": []},
    "transfer": {
        "number": 0,
        "of": "load",
        "is_synchronous": False,
        "lost": [],
        "num_states": 0,
        "is_ahead": False,
    },
    "in_flight": {"free": [], "registered": []},
    "controlled": {"version": 0, "tokens": []},
}


class Part(NamedTuple):
    """A batch row of a step: `tokens` from position `first`, the last `num_drafts` are drafts.

    `begun` has all tokens of the request if a stay begins. `states` and `windows` have the blocks of each such group.
    A state includes `kept` tokens of the step before.
    """

    request: int
    first: int
    input_ids: Sequence[int]
    table: Blocks
    num_drafts: int = 0
    begun: Sequence[int] | None = None
    states: Sequence[Blocks] = ()
    windows: Sequence[Blocks] = ()
    kept: int = 1

    @property
    def positions(self) -> range:
        """Return the positions of the row's tokens."""
        return range(self.first, self.first + len(self.input_ids))


def shown(
    point: str, step: int = 0, requests: Sequence[int] = (), engine: EngineName = ENGINE, **values: Any
) -> EngineRecord:
    """Return an engine record of a step; missing columns are zero."""
    given = {**_DEFAULTS.get(point, {}), **values}
    if point == "scheduled":
        for name in ("scheduled_computed", "planned_drafts"):
            given.setdefault(name, [0] * len(requests))
    if point == "transfer":
        given.setdefault("slots", range(len(given["blocks"])))
    if point in ("inputs", "drafting"):
        starts = given.setdefault("starts", range(len(requests) + 1))
        for name in ("input_ids", "positions", "slots"):
            given.setdefault(name, [0] * starts[-1])
        given.setdefault("seq_lens", [given["positions"][stop - 1] + 1 for stop in starts[1:]])
        given.setdefault("tables", [[]] * len(requests))
    if point == "inputs":
        given.setdefault("drafts", [0] * len(requests))
    return _SHOWN.validate_python({"point": point, "step": step, "requests": requests, "values": given, "of": engine})


def opened(engine: EngineName = ENGINE, **values: Any) -> EngineRecord:
    """Return the engine record with the sizes of an engine."""
    return shown("opened", -1, engine=engine, **values)


def slots_of(positions: Sequence[int], table: Blocks, size: int) -> list[int]:
    """Return the KV-cache slots of positions in the blocks of a table."""
    return [table[position // size] * size + position % size for position in positions]


def step_of(number: int, *parts: Part, size: int = 4, engine: EngineName = ENGINE, **values: Any) -> list[EngineRecord]:
    """Return the records of a step's scheduler output and model inputs."""
    requests = [part.request for part in parts]
    plan: dict[str, Any] = {
        "scheduled_computed": [part.first for part in parts],
        "planned_drafts": [part.num_drafts for part in parts],
        "begun": [(part.request, part.begun) for part in parts if part.begun is not None],
        "blocks": [(part.request, part.table) for part in parts],
        "states": [(part.request, part.states) for part in parts],
        "windows": [(part.request, part.windows) for part in parts],
    }
    plan.update((name, value) for name, value in values.items() if name in ScheduledValues.model_fields)
    inputs: dict[str, Any] = {
        **_columns(parts, size),
        "drafts": [part.num_drafts for part in parts],
        "states": [_states(parts, group) for group in range(len(parts[0].states))],
        "windows": [_windows(parts, group, size) for group in range(len(parts[0].windows))],
    }
    inputs.update((name, value) for name, value in values.items() if name not in ScheduledValues.model_fields)
    return [shown("scheduled", number, requests, engine, **plan), shown("inputs", number, requests, engine, **inputs)]


def pass_of(number: int, index: int, *parts: Part, size: int = 4, **values: Any) -> EngineRecord:
    """Return the record of a draft pass's inputs; `values` replace columns."""
    columns = {**_columns(parts, size), **values}
    return shown("drafting", number, [part.request for part in parts], index=index, **columns)


def _columns(parts: Sequence[Part], size: int) -> dict[str, Any]:
    return {
        "input_ids": [token for part in parts for token in part.input_ids],
        "positions": [position for part in parts for position in part.positions],
        "slots": [slot for part in parts for slot in slots_of(part.positions, part.table, size)],
        "starts": [sum(len(part.input_ids) for part in parts[:row]) for row in range(len(parts) + 1)],
        "bounds": [part.positions.stop for part in parts],
        "tables": [part.table for part in parts],
    }


def _states(parts: Sequence[Part], group: int) -> Mapping[str, Any]:
    return {
        "states": [part.states[group][-1] for part in parts],
        "goes_on": [part.first > 0 for part in parts],
        "kept": [part.kept for part in parts],
        # A prefill chunk writes one recurrent state, a row with drafts one after each token.
        "whole": [len(part.input_ids) > 1 + part.num_drafts for part in parts],
    }


def _windows(parts: Sequence[Part], group: int, size: int) -> Mapping[str, Any]:
    slots = [slot for part in parts for slot in slots_of(part.positions, part.windows[group], size)]
    return {"slots": slots, "tables": [part.windows[group] for part in parts]}


def changed(seen: Sequence[EngineRecord], *changes: tuple[Any, ...]) -> list[EngineRecord]:
    """Return records with some values replaced, given by step, point and path.

    The path of a value in another than the first pass of a drafter begins with the index of the pass.
    """
    found = [each.model_dump() for each in seen]
    for step, point, *path, value in changes:
        places = [each["values"] for each in found if (each["step"], each["point"]) == (step, point)]
        place = places[path.pop(0)] if isinstance(path[0], int) else places[0]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    return [_SHOWN.validate_python(each) for each in found]


def without(seen: Sequence[EngineRecord], *points: str, step: int | None = None) -> list[EngineRecord]:
    """Return the records without those at some points, in one step or in all."""
    return [each for each in seen if each.point not in points or step not in (None, each.step)]


def first_of(
    judge: HistoryJudge, seen: Sequence[EngineRecord], steps: int = 9, outputs: Mapping[str, Output] | None = None
) -> Difference | None:
    """Return the first difference that a judge finds in the history of a run."""
    return judge.at_end(End(steps, outputs or {}, history=History.of(seen)))


def reported(found: Difference | None, *names: str) -> tuple[object, ...] | None:
    """Return some fields of a difference, or None."""
    return None if found is None else tuple(getattr(found, name) for name in names)
