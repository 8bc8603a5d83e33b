"""Records of a correct run, to compare runs of the same trace under other schedules with it.

An *agreed run* is a run without a difference from the oracle; a *capture* is a copy of device variables.

The required log and captures of an engine depend on the trace, but not on its schedule. So a run with the same log and
captures as an agreed run agrees as well, and need not be judged again, except for races and contracts.
"""

from dataclasses import dataclass, field

from scenarios.trace import Trace
from workers.judge.checker import Checker
from workers.record.log import Entry
from workers.record.observation import Observation

# The record of a longer run is dropped: a step takes some 10 kB.
STEPS_MAX = 2000


@dataclass(slots=True, eq=False)
class AgreedRun:
    """Log, captures and final state of a run in which no judge found a difference.

    `agrees` is true once the run has ended without a difference.
    """

    trace: Trace
    checker: Checker
    log: list[Entry | Observation] = field(default_factory=list)
    captures: list[Observation] = field(default_factory=list)
    left: Observation | None = None
    digest: str = ""
    steps: int = 0
    agrees: bool = False

    def is_copy_of(self, trace: Trace) -> bool:
        """Return whether a trace equals this run's trace except for the schedule."""
        own = self.trace
        is_same = trace.spec is own.spec and trace.events is own.events and trace.faults == own.faults
        return self.agrees and is_same and trace.seed == own.seed

    def keep(self, log: list[Entry | Observation], captures: list[Observation]) -> None:
        """Store a step's log entries and device captures."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.log.clear()
            self.captures.clear()
            return
        self.log += log
        self.captures += captures

    def ended(self, left: Observation, digest: str) -> None:
        """Store the host's final state and the digest of all captures, at the end of the run."""
        self.left, self.digest = left, digest
        self.agrees = self.steps <= STEPS_MAX


class Repetition:
    """Comparison of a run under another schedule with the records of a correct run."""

    def __init__(self, agreed: AgreedRun) -> None:
        self._agreed = agreed
        self._num_logged = self._num_captured = 0

    def matches_step(self, log: list[Entry | Observation], captures: list[Observation]) -> bool:
        """Return whether the next step's log and captures equal those of the correct run."""
        agreed, logged, captured = self._agreed, self._num_logged, self._num_captured
        self._num_logged += len(log)
        self._num_captured += len(captures)
        return (
            agreed.log[logged : self._num_logged] == log and agreed.captures[captured : self._num_captured] == captures
        )

    def matches_end(self, left: Observation, digest: str) -> bool:
        """Return whether the run ended as the correct one: same number of records, same state."""
        agreed = self._agreed
        shown = self._num_logged, self._num_captured
        return shown == (len(agreed.log), len(agreed.captures)) and (left, digest) == (agreed.left, agreed.digest)
