"""Values of an export: a finding, and the test file for the engine that reproduces it."""

from dataclasses import dataclass
from typing import NamedTuple

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.verdict import Diverged, Verdict


class ExportError(ValueError):
    """A finding that no test of its engine can reproduce; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding to export: its trace, the trace's file, and its verdict on one engine version."""

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
    """Exported test: the `text` of its file, and `body`, the lines of the test function alone.

    `engine` is the engine's name in prose, `needs` says what it takes to run the test.
    """

    text: str
    body: str
    engine: str
    needs: str
