"""Checks of a reversal's edits on the installed sources."""

from pathlib import Path

from benchmarks.power.reversals.table import Reversal
from benchmarks.power.reversals.trial import installed
from workers.edits.tree import overlay


def check_edits(reversal: Reversal, engine: str, folder: Path) -> None:
    """Assert that every edit matches the installed source once and changes it.

    The edited files are written to `folder`.
    """
    sources = installed(engine)
    overlay(reversal.edits, sources, folder)
    files = {edit.file for edit in reversal.edits}
    assert files, "it edits something"
    for file in files:
        assert (folder / file).read_text() != (sources / file).read_text()
