"""The script that writes measured numbers into the page of faults."""

import json
from typing import Any

import pytest

from cluster.reports.fault_page import KNOWN, PAGE, cells_of, summary, with_cells
from cluster.statistics.fault_table import by_fault, measure_document
from workers.oracle.model_values import ModelValueCache
from workers.run.trials import run_trial

FAULT = "vllm-38556-backup-token"


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    """Return the document of a measurement with two trials of one fault."""
    trials = [run_trial(FAULT, number, 3, True, ModelValueCache()) for number in range(2)]
    document = json.loads(measure_document(list(by_fault(trials)), trials, [], 0).model_dump_json())
    assert isinstance(document, dict)
    return document


def test_measured_fault_has_figures_and_other_rows_stay(measured: dict[str, Any]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    written = with_cells(page, {FAULT: measured["faults"][0]})
    assert with_cells(written, {FAULT: measured["faults"][0]}) == written
    before, after = (
        [line.split(" | ")[: len(KNOWN)] for line in text.splitlines() if line.startswith("| `")]
        for text in (page, written)
    )
    assert before == after
    row = next(line for line in written.splitlines() if line.startswith(f"| `{FAULT}`"))
    assert row.endswith(" | ".join(["", *cells_of(measured["faults"][0])]) + " |")
    assert cells_of(measured["faults"][0])[:2] == ("2 of 2", "1 [1, -]")


def test_measurement_summary_agrees_with_its_lines(measured: dict[str, Any]) -> None:
    said = " ".join(summary(measured, "a machine").split())
    assert "Of 1 faults 1 are found in every trial; of 2 trials 2 find theirs, 2 of them in the expected plane" in said
    assert measured["specstorm"] in said
