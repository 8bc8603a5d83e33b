"""Reading and writing of the tables of survivors and reasons."""

from pathlib import Path

import pytest

from benchmarks.power.survivors import REASONS, SURVIVORS, Classified, TableError, classified, row_of

HEADS = {SURVIVORS: "file,line,change,reason\n", REASONS: "id,class,reason\n"}
WHY = "luck,rare,needs luck\n"
NAMES = ("workers/a.py", 'f("a", b) | c', "1 → 2 #2")


def tables(folder: Path, survivors: str, reasons: str = WHY) -> Path:
    for name, rows in ((SURVIVORS, survivors), (REASONS, reasons)):
        (folder / name).write_text(HEADS[name] + rows, encoding="utf-8")
    return folder


def test_written_row_is_read_back_equal(tmp_path: Path) -> None:
    folder = tables(tmp_path, row_of(NAMES, "luck") + "\n")
    assert classified(folder) == {" | ".join(NAMES): Classified("rare", "luck", 2)}


@pytest.mark.parametrize(
    ("survivors", "reasons", "complaint"),
    [
        ("a,b,c,luck\na,b,c,luck\n", WHY, "survivors.csv: line 3: already on line 2"),
        ("a,b,c,?\n", WHY, r"survivors.csv: line 2: reasons.csv has no reason '\?'"),
        ("a,b,c,luck,why\n", WHY, "survivors.csv: line 2: 5 columns; expected file, line, change, reason"),
        ("a,b,c,luck\n\n", WHY, "survivors.csv: line 3: 0 columns"),
        ('a,"b,c,luck\n', WHY, "survivors.csv: line 2: unexpected end of data"),
        ("a,b,c,luck\n", "luck,odd,why\n", "reasons.csv: line 2: unknown class 'odd'; expected one of equivalent, "),
        ("a,b,c,luck\n", "luck,rare,\n", "reasons.csv: line 2: luck has no text"),
        ("a,b,c,luck\n", WHY + WHY, "reasons.csv: line 3: luck occurs twice"),
        ("a,b,c,luck\n", WHY + "more,rare,why\n", "reasons.csv: explains no survivor: more"),
    ],
)
def test_invalid_table_is_refused_with_line_number(
    tmp_path: Path, survivors: str, reasons: str, complaint: str
) -> None:
    with pytest.raises(TableError, match=complaint):
        classified(tables(tmp_path, survivors, reasons))


def test_table_without_header_is_refused(tmp_path: Path) -> None:
    tables(tmp_path, "a,b,c,luck\n")
    (tmp_path / REASONS).write_text(WHY, encoding="utf-8")
    with pytest.raises(TableError, match=r"reasons.csv: line 1: .* expected id, class, reason"):
        classified(tmp_path)
