"""Types of all columns of stored rows, verified whenever a row is read.

A row with a correct seal may still come from another version, or be made by hand.

Verifies: types, ranges and names of all columns, and JSON by the value that it becomes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, Json, TypeAdapter, ValidationError

from cluster.storage.errors import CampaignError, first_problem
from cluster.storage.hunts import FindingState, HuntPlan
from cluster.storage.provenance import Run
from cluster.storage.schema import Row, Table
from workers.record.names import ArtefactPath, Key
from workers.record.verdict import Judgement, Kind
from workers.run.shard import ShardReport
from workers.run.trials import Trial

_SHOWN_MAX = 60
Number = Annotated[int, Field(strict=True, ge=0, le=1 << 53)]
Text = Annotated[str, Field(strict=True)]


_ROWS: Mapping[str, TypeAdapter[Any]] = {
    "meta": TypeAdapter(tuple[Text, Text]),
    "runs": TypeAdapter(tuple[Key, Json[Run]]),
    "results": TypeAdapter(tuple[Key, Text, Number, Kind, Text, ArtefactPath | None, Json[Judgement]]),
    "attempts": TypeAdapter(tuple[Key, Number, Key, Number, Text | None, Text | None]),
    "late": TypeAdapter(tuple[Key, Text, Number, Json[Any]]),
    "hunts": TypeAdapter(tuple[Json[HuntPlan]]),
    "shards": TypeAdapter(tuple[Key, Text, Number, Text, Json[ShardReport]]),
    "trials": TypeAdapter(tuple[Key, Text, Json[Trial]]),
    "findings": TypeAdapter(tuple[Text, Json[FindingState]]),
}


def checked_row(path: Path, table: Table, row: Row) -> Row:
    """Return a stored row, or raise if a column has a value of a wrong type.

    Raises:
        CampaignError: a value is invalid; the message names the row, the column and the problem.
    """
    try:
        values = _ROWS[table.name].validate_python(row)
    except ValidationError as error:
        column = error.errors(include_url=False)[0]["loc"][0]
        name = table.columns[column] if isinstance(column, int) and column < len(table.columns) else table.name
        raise _unreadable(path, table, row, f"{name}: {first_problem(error)}") from error
    if table.name == "results" and values[-1].verdict.kind != values[3]:
        raise _unreadable(path, table, row, f"verdict: {values[3]}, where the judgement is {values[-1].verdict.kind}")
    return row


def _unreadable(path: Path, table: Table, row: Row, problem: str) -> CampaignError:
    what = f"{path}: row {str(row[0])[:_SHOWN_MAX]!r} of {table.name} holds what this version cannot read"
    return CampaignError(f"{what}: {problem}; use the version that wrote it, or leave the campaign out")
