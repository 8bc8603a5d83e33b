"""Write the measured faults into `docs/results/faults.md`: tables and a summary.

`specstorm faults measure --trials 10 --traces 200 --out DIR`, then `python -m cluster.reports.fault_page
DIR/faults.json --on "16 cores of ..."`. A fault without a measurement has dashes.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from cluster.dispatch.origin import ROOT
from cluster.statistics.fault_table import Line
from scenarios.input_file import read_file

PAGE = ROOT / "docs" / "results" / "faults.md"
KNOWN = ("id", "source", "symptom", "trigger", "part", "requires", "plane")
MEASURED = ("found", "traces", "outputs")
WIDTH = 120
BYTES_MAX = 16 << 20
SUMMARY = re.compile(r"(?<=<!-- measured -->\n).*?(?=\n<!-- /measured -->)", re.DOTALL)


def cells_of(line: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the measured cells of one fault's row in the table.

    Trials that found it, traces until then, trials found by outputs.
    """
    if line is None:
        return ("-",) * len(MEASURED)
    by = Line.model_validate(line).by_plane
    elsewhere = [f"{count} in {plane}" for plane, count in by.most_common() if plane != line["expected_plane"]]
    found = f"{line['detected']} of {line['trials']}"
    low, high = (_number(line["traces"][name]) for name in ("low", "high"))
    return (
        f"{found}, {', '.join(elsewhere)}" if elsewhere else found,
        f"{_number(line['traces']['at'])} [{low}, {high}]",
        f"{line['against_synchronous']} / {line['against_correct']}" if line["baseline"] else "-",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def with_cells(page: str, lines: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the page with the measured cells of each row replaced."""
    rows = []
    for text in page.splitlines():
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if cells[: len(KNOWN)] == list(KNOWN):
            rows += [_row(KNOWN + MEASURED), "|" + "---|" * len(KNOWN + MEASURED)]
        elif len(cells) > len(KNOWN) and set(cells) == {"---"}:
            continue
        elif len(cells) > len(KNOWN) and text.startswith("| `"):
            rows.append(_row((*cells[: len(KNOWN)], *cells_of(lines.get(cells[0].strip("`"))))))
        else:
            rows.append(text)
    return "\n".join(rows) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def summary(document: Mapping[str, Any], machine: str) -> str:
    """Return the results of a measurement of faults as sentences."""
    lines = document["faults"]
    least, most = (of(line["trials"] for line in lines) for of in (min, max))
    trials, traces_max = f"{most}" if least == most else f"{least} to {most}", document["trials"][0]["traces_max"]
    always = sum(line["detected"] == line["trials"] for line in lines)
    expected = sum(Line.model_validate(line).by_plane[line["expected_plane"]] for line in lines)
    detected = sum(line["detected"] for line in lines)
    medians = [line["traces"]["at"] for line in lines if line["traces"]["at"] is not None]
    seconds = [line["seconds"]["at"] for line in lines if line["seconds"]["at"] is not None]
    events = [line["shrunk_events"] for line in lines if line["shrunk_events"] is not None]
    holds = [line["shrunk_holds"] for line in lines if line["shrunk_holds"] is not None]
    longest = max(trial["seconds"] for trial in document["trials"])
    synchronous = sum(line["against_synchronous"] > 0 for line in lines)
    correct = sum(line["against_correct"] > 0 for line in lines)
    trials_synchronous = sum(line["against_synchronous"] for line in lines)
    trials_correct = sum(line["against_correct"] for line in lines)
    all_trials = sum(line["trials"] for line in lines)
    text = (
        f"`specstorm faults measure --traces {traces_max}`, {trials} trials of each fault, on {machine}, build "
        f"`{document['specstorm']}`. Of {len(lines)} faults {always} are found in every trial; of {all_trials} trials "
        f"{detected} find theirs, {expected} of them in the expected plane. Medians over trials: "
        f"{_counted(median(medians), 'trace')} in the middle of all faults and {max(medians):g} at most; "
        f"{median(seconds):.2f} seconds of one core "
        f"and {max(seconds):.1f} at most, and {longest:.0f} in the longest trial. Their shrunk traces have "
        f"{_counted(median(events), 'event')} in the middle and {max(events)} at most, and at most "
        f"{_counted(max(holds), 'exception')} to the "
        f"schedule. Comparing outputs with a synchronous run of the same code finds {synchronous} faults in some "
        f"trial, and the fault in {trials_synchronous} of {all_trials} trials; with correct code {correct} faults, "
        f"and {trials_correct} trials."
    )
    return fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _counted(count: float, what: str) -> str:
    return f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def main() -> int:
    """Write the measured results into the page of faults; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("document", type=Path, help="faults.json of a measurement")
    parser.add_argument("--on", required=True, help="the machine it ran on, for the text")
    arguments = parser.parse_args()
    document = json.loads(read_file(arguments.document, BYTES_MAX))
    page = with_cells(PAGE.read_text(encoding="utf-8"), {line["fault"]: line for line in document["faults"]})
    assert SUMMARY.search(page), f"{PAGE} has no place for what was measured"
    PAGE.write_text(SUMMARY.sub(lambda _: summary(document, arguments.on), page), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
