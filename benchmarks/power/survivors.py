"""Tables of mutants that no trace finds (survivors), with a class and a reason each.

`survivors.csv` names each survivor by file, line text and change, and gives the id of a reason; `reasons.csv` gives the
class and the explanation of each id.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
# Survivors that do no harm, survivors that random traces rarely find, and survivors that nothing finds.
HARMLESS = ("equivalent", "telemetry", "free policy")
CLASSES = (*HARMLESS, "rare", "unreachable", "blind")
SURVIVORS, REASONS = "survivors.csv", "reasons.csv"
COLUMNS = {SURVIVORS: ("file", "line", "change", "reason"), REASONS: ("id", "class", "reason")}


class TableError(Exception):
    """A table of survivors or reasons is invalid; the message says where."""


class Classified(NamedTuple):
    """A survivor: its class, the id of its reason, and its line in the table."""

    kind: str
    reason: str
    at: int


def _rows(folder: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of a table after its header, each with its line number."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        reader, columns = csv.reader(file, strict=True), COLUMNS[name]
        try:
            for cells in reader:
                if len(cells) != len(columns) or (reader.line_num == 1 and tuple(cells) != columns):
                    raise TableError(
                        f"{name}: line {reader.line_num}: {len(cells)} columns; expected {', '.join(columns)}"
                    )
                if reader.line_num > 1:
                    yield reader.line_num, cells
        except csv.Error as error:
            raise TableError(f"{name}: line {reader.line_num}: {error}") from error


def classes(folder: Path = FOLDER) -> dict[str, str]:
    """Return the class of each reason for survival, by the id of the reason.

    Raises:
        TableError: a reason has an unknown class or no text, or occurs twice.
    """
    found: dict[str, str] = {}
    for number, (identity, kind, reason) in _rows(folder, REASONS):
        where = f"{REASONS}: line {number}"
        if kind not in CLASSES:
            raise TableError(f"{where}: unknown class {kind!r}; expected one of {', '.join(CLASSES)}")
        if not reason:
            raise TableError(f"{where}: {identity} has no text")
        if identity in found:
            raise TableError(f"{where}: {identity} occurs twice")
        found[identity] = kind
    return found


def classified(folder: Path = FOLDER) -> dict[str, Classified]:
    """Return the classified survivors by mutant key.

    Raises:
        TableError: a survivor occurs twice or names an unknown reason, or a reason explains no survivor.
    """
    kinds, found = classes(folder), dict[str, Classified]()
    for number, (*names, reason) in _rows(folder, SURVIVORS):
        where, key = f"{SURVIVORS}: line {number}", " | ".join(names)
        if reason not in kinds:
            raise TableError(f"{where}: {REASONS} has no reason {reason!r}")
        if key in found:
            raise TableError(f"{where}: already on line {found[key].at}")
        found[key] = Classified(kinds[reason], reason, number)
    unused = kinds.keys() - {each.reason for each in found.values()}
    if unused:
        raise TableError(f"{REASONS}: explains no survivor: {', '.join(sorted(unused))}")
    return found


def row_of(names: Sequence[str], reason: str) -> str:
    """Return the line of `survivors.csv` for a mutant with these names."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([*names, reason])
    return text.getvalue()
