"""Table of reversals: small edits of an engine, each undoing one merged fix.

A folder has one file for each class.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, TypeVar

from pydantic import Field, ValidationError

from scenarios.spec import Value
from scenarios.strict_yaml import ScenarioError, read
from workers.edits.edit import Edit

# Meaning of a reversal's number: a merged fix; a report of a bug fixed under another number; a merged change of
# which one part is undone; a running number of planted mistakes without a merged fix.
Origin: TypeAlias = Literal["fix", "report", "change", "plant"]


class TableError(Exception):
    """The table of reversals is invalid; the message says where."""


class Reversal(Value):
    """One reversal: number and title of the undone fix, and the edits of the source.

    `runners` are the engine's variants that have the code, `plane` is where it is expected to show, `needs` lists
    required trace properties; `note` explains the edit, `missed` says why random traces are not expected to find it.
    """

    id: Annotated[str, Field(pattern=r"^[a-z]+-[0-9]+-[a-z0-9-]+$")]
    source: Origin = "fix"
    title: str
    runners: Annotated[tuple[str, ...], Field(min_length=1)]
    plane: str
    needs: tuple[str, ...] = ()
    note: str = ""
    missed: str = ""
    edits: Annotated[tuple[Edit, ...], Field(min_length=1)]
    kind: str = ""

    @property
    def number(self) -> int:
        """Return the number of the undone fix in the engine's project."""
        return int(self.id.split("-")[1])

    @property
    def expected_missed(self) -> str:
        """Return why random traces need not find the reversal; "" if they must."""
        return self.missed

    @property
    def places(self) -> tuple[str, ...]:
        """Return the edited functions, each with its module."""
        return tuple(dict.fromkeys(edit.at for edit in self.edits))


R = TypeVar("R", bound=Reversal)


@cache
def reversals_in(folder: Path, of: type[R]) -> tuple[R, ...]:
    """Return the reversals of all classes, in the order of the classes.

    Raises:
        TableError: a file is not a valid table, or an id occurs twice.
    """
    found = tuple(each for file in sorted(folder.glob("*.yaml")) for each in _of_file(file, of))
    twice = sorted({each.id for each in found if sum(other.id == each.id for other in found) > 1})
    if twice:
        raise TableError(f"{folder}: {', '.join(twice)}: ids occur twice")
    return found


def _of_file(file: Path, of: type[R]) -> Iterator[R]:
    try:
        rows, _ = read(file.read_text(encoding="utf-8"), file.name)
    except ScenarioError as error:
        raise TableError(str(error)) from error
    if not isinstance(rows, list):
        raise TableError(f"{file.name}: expected a list of reversals")
    for row in rows:
        try:
            yield of.model_validate(row).model_copy(update={"kind": file.stem.replace("_", " ")})
        except ValidationError as error:
            first = error.errors()[0]
            name = row.get("id", row) if isinstance(row, dict) else row
            raise TableError(f"{file.name}: {name}: {first['loc']}: {first['msg']}") from error
