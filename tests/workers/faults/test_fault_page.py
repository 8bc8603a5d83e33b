"""The page of faults agrees with the registered faults for each historical bug."""

import re
from pathlib import Path

from workers.faults.registry import FAULTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "results" / "faults.md"
FAMILIES, BUGS = PAGE.read_text(encoding="utf-8").split("\n## All 105 bugs\n")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in BUGS.splitlines() if line.startswith("| ")][
    1:
]
NAMED = re.compile(r"`([^`]+)`")


def test_each_of_105_bugs_has_one_table_row() -> None:
    assert len(ROWS) == len({bug for bug, _, _ in ROWS}) == 105
    assert {state for _, state, _ in ROWS} <= {"live", "equivalent here", "impossible here", "open"}


def test_live_and_equivalent_bugs_name_their_faults() -> None:
    for bug, state, what in ROWS:
        named = NAMED.findall(what)
        assert bool(named) == (state in ("live", "equivalent here")), bug
        assert set(named) <= FAULTS.keys(), bug


def test_every_fault_re_creates_one_bug_or_none() -> None:
    live = [fault for _, state, what in ROWS if state == "live" for fault in NAMED.findall(what)]
    text = "\n".join(line for line in BUGS.splitlines() if not line.startswith("|"))
    others = [name for name in NAMED.findall(text) if name in FAULTS]
    assert sorted(live + others) == sorted(FAULTS)


def test_numbers_of_bug_kinds_match_the_table() -> None:
    said = re.search(r"(\d+) of the 105 bugs are live, (\d+) equivalent, (\d+) impossible, (\d+) open", BUGS)
    assert said is not None
    kinds = [state for _, state, _ in ROWS]
    counted = [kinds.count(state) for state in ("live", "equivalent here", "impossible here", "open")]
    assert [int(number) for number in said.groups()] == counted


def test_every_fault_has_a_row_with_its_registered_values() -> None:
    lines = {
        name: line for line in FAMILIES.splitlines() for name in NAMED.findall(line[:60]) if line.startswith("| `")
    }
    assert lines.keys() == FAULTS.keys()
    for name, fault in FAULTS.items():
        cells = [cell.strip() for cell in lines[name].strip("|").split("|")]
        assert cells[1:4] == [fault.source, fault.symptom, fault.trigger], name
        assert cells[6] == fault.plane, name
