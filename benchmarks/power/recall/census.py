"""Read and check the census: a row for each fix between two releases of an engine.

`vllm.csv` and `sglang.csv` have the rows, `mechanisms.csv` what fixes need that no trace has. A row that a trace can
express names the edits that undo it, if any; the results of their trials decide whether hunts show it.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from benchmarks.power.recall import trials
from benchmarks.power.reversals.runs import Results
from benchmarks.power.reversals.trial import Result
from benchmarks.power.sglang_power import reversals as sglang_reversals
from workers.edits.fix import FINDINGS

FOLDER = Path(__file__).resolve().parent
# Fixes of these releases are counted: after the first, up to the second.
RELEASES = {"vllm": ("0.32.0", "0.33.0"), "sglang": ("0.5.20", "0.5.23")}
# Results of the trials of each engine's fixes.
RESULTS = {"vllm": FOLDER / "results.jsonl", "sglang": FOLDER.parent / "sglang_power" / "results.jsonl"}
Status: TypeAlias = Literal["found before", "expressible", "not expressible"]
Outcome: TypeAlias = Literal["found before", "shown", "missed", "not tried", "not expressible"]
_VERSIONS = re.compile(r"^versions: (.*)$", re.MULTILINE)


class CensusError(Exception):
    """The census is invalid; the message says where."""


class Fix(NamedTuple):
    """A fix: what was wrong, where, and whether hunts of the older release had shown it.

    `number` is a pull request or report, "" if unknown. `reversal` names the edits that undo the fix, `missing` the
    mechanism that no trace has, `judge` the check that a missed fix needs.
    """

    row: int
    number: str
    file: str
    kind: str
    what: str
    status: Status
    finding: str
    reversal: str
    missing: str
    judge: str


def mechanisms(folder: Path = FOLDER) -> dict[str, str]:
    """Return a description of each mechanism that no trace has, by name."""
    return {row["mechanism"]: row["what"] for row in _rows(folder / "mechanisms.csv")}


def fixes(engine: str, folder: Path = FOLDER) -> list[Fix]:
    """Return the fixes of an engine, in the order of their rows.

    Raises:
        CensusError: a row is invalid.
    """
    known, found = mechanisms(folder), []
    for number, row in enumerate(_rows(folder / f"{engine}.csv"), 1):
        if row["status"] not in get_args(Status):
            raise CensusError(f"{engine}.csv: row {number}: {row['status']!r}; expected {', '.join(get_args(Status))}")
        if row["row"] != str(number):
            raise CensusError(f"{engine}.csv: row {number}: its number is {row['row']!r}")
        fix = Fix(number, row["number"], row["file"], row["class"], *(row[key] for key in Fix._fields[4:]))  # type: ignore[arg-type]
        _check(fix, engine, known)
        found.append(fix)
    return found


def _rows(file: Path) -> Iterator[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as text:
        yield from csv.DictReader(text, strict=True)


def _check(fix: Fix, engine: str, known: Mapping[str, str]) -> None:
    wanted = {"found before": "finding", "expressible": "", "not expressible": "missing"}[fix.status]
    for key in ("finding", "missing"):
        _demand(
            fix, engine, bool(getattr(fix, key)) == (key == wanted), f"{key} must be set if and only if {fix.status}"
        )
    _demand(fix, engine, not fix.reversal or fix.status == "expressible", "reversal must be empty")
    _demand(fix, engine, not fix.missing or fix.missing in known, f"{fix.missing!r} is not in mechanisms.csv")
    _demand(fix, engine, not fix.number or fix.number.isdecimal(), f"{fix.number!r} is not a number")
    _demand(fix, engine, bool(fix.file and fix.kind and fix.what), "file, class and what are required")
    if fix.reversal:
        _demand(fix, engine, fix.reversal in _reversals(engine), f"no reversal {fix.reversal}")
        own = fix.reversal.startswith("recall-")
        _demand(fix, engine, not own or fix.reversal.startswith(f"recall-{fix.row}-"), "reversal of another row")
    if fix.finding:
        page = FINDINGS / fix.finding / "README.md"
        _demand(fix, engine, page.is_file(), f"no finding {fix.finding}")
        versions = _VERSIONS.search(page.read_text(encoding="utf-8"))
        text = f"fixed in {RELEASES[engine][1]}"
        _demand(fix, engine, versions is not None and text in versions[1], f"{fix.finding} is not {text}")


def _demand(fix: Fix, engine: str, holds: bool, why: str) -> None:
    if not holds:
        raise CensusError(f"{engine}.csv: row {fix.row}: {why}")


def _reversals(engine: str) -> set[str]:
    every = trials.all_reversals() if engine == "vllm" else sglang_reversals.all_reversals()
    return {each.id for each in every}


def results(engine: str) -> dict[str, Result]:
    """Return the result of each undone fix of an engine, by reversal; of several runners, one that finds it."""
    done = [each for each in Results(RESULTS[engine]).by_key.values() if not each.refused]
    return {each.id: each for each in sorted(done, key=lambda each: each.found is not None)}


def outcome(fix: Fix, tried: Mapping[str, Result]) -> Outcome:
    """Return whether a fix was found before, is shown by hunts, is missed, or is not expressible."""
    if fix.status != "expressible":
        return fix.status
    result = tried.get(fix.reversal)
    if result is None:
        return "not tried"
    return "missed" if result.found is None else "shown"
