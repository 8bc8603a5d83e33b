"""A finding that is exported, and the test that it becomes: a file of the engine's own kind, without this project."""

from dataclasses import dataclass
from typing import NamedTuple

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.verdict import Diverged, Verdict


class ExportError(ValueError):
    """A finding that no test of its engine shows; the message is one line for the user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding by name and title: an explicit trace, its file, and its verdict on a version of an engine."""

    name: str
    title: str
    source: str
    trace: Trace
    verdict: Verdict
    version: str

    @property
    def difference(self) -> Difference | None:
        """What differs, of a run that came to an end."""
        return self.verdict.difference if isinstance(self.verdict, Diverged) else None


class ExportedTest(NamedTuple):
    """The text of a test file, the lines of its test alone, and in words the engine, and what it takes to run it."""

    text: str
    body: str
    engine: str
    needs: str
