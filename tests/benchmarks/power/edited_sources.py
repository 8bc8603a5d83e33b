"""What holds of the edits of any reversal on the sources that are installed."""

from pathlib import Path

from benchmarks.power.reversals.edits import overlay
from benchmarks.power.reversals.table import Reversal, edits_of
from benchmarks.power.reversals.trial import installed


def check_edits(reversal: Reversal, engine: str, folder: Path) -> None:
    """Assert that every edit matches the installed source once and changes it, in a folder for the edited files."""
    sources = installed(engine)
    overlay(edits_of(reversal), sources, folder)
    files = {edit.file for edit in edits_of(reversal)}
    assert files, "it edits something"
    for file in files:
        assert (folder / file).read_text() != (sources / file).read_text()
