"""Values of an export: a finding, and the test file that reproduces it in the engine."""

from dataclasses import dataclass
from typing import NamedTuple

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.verdict import Diverged, Verdict


class ExportError(ValueError):
    """No test of the engine can reproduce a finding; the message is one line for users."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding to export: its trace, trace file, and verdict on one engine version."""

    name: str
    title: str
    source: str
    trace: Trace
    verdict: Verdict
    version: str

    @property
    def difference(self) -> Difference | None:
        """First difference from the reference run; None if the verdict is not `Diverged`."""
        return self.verdict.difference if isinstance(self.verdict, Diverged) else None


class ExportedTest(NamedTuple):
    """An exported test: its file's `text`, and the lines of its function (`body`).

    `engine` is the engine's name in prose, `needs` says what it takes to run the test.
    """

    text: str
    body: str
    engine: str
    needs: str
