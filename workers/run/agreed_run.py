"""Agreed run: the full record of a judged run, with which runs under other schedules are compared.

What an engine must show follows from a trace without its schedule. So a run that shows the same as one that agrees,
entry by entry and capture by capture, agrees as well. It need not be judged again, except for races and contracts.
"""

from dataclasses import dataclass, field

from scenarios.trace import Trace
from workers.judge.checker import Checker
from workers.record.log import Entry
from workers.record.observation import Observation

# Of longer runs nothing is kept: a step takes some 10 kB.
STEPS_MAX = 2000


@dataclass(slots=True, eq=False)
class AgreedRun:
    """The log and the captures of a run, each in order, what was left at its end, and the checker that judged them.

    `agrees` once the run has ended and nothing was found.
    """

    trace: Trace
    checker: Checker
    log: list[Entry | Observation] = field(default_factory=list)
    captures: list[Observation] = field(default_factory=list)
    left: Observation | None = None
    digest: str = ""
    steps: int = 0
    agrees: bool = False

    def is_of(self, trace: Trace) -> bool:
        """Return whether a trace differs from the one that agreed in its schedule alone, as copies of one trace do."""
        own = self.trace
        is_same = trace.spec is own.spec and trace.events is own.events and trace.faults == own.faults
        return self.agrees and is_same and trace.seed == own.seed

    def keep(self, log: list[Entry | Observation], captures: list[Observation]) -> None:
        """Keep what was shown in a step."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            self.log.clear()
            self.captures.clear()
            return
        self.log += log
        self.captures += captures

    def ended(self, left: Observation, digest: str) -> None:
        """Note that the run has ended, and that nothing was found."""
        self.left, self.digest = left, digest
        self.agrees = self.steps <= STEPS_MAX


class Repetition:
    """A run under another schedule, compared step by step with the agreed one instead of being judged."""

    def __init__(self, agreed: AgreedRun) -> None:
        self._agreed = agreed
        self._num_logged = self._num_captured = 0

    def goes_on(self, log: list[Entry | Observation], captures: list[Observation]) -> bool:
        """Return whether the next step's records are the same."""
        agreed, logged, captured = self._agreed, self._num_logged, self._num_captured
        self._num_logged += len(log)
        self._num_captured += len(captures)
        return (
            agreed.log[logged : self._num_logged] == log and agreed.captures[captured : self._num_captured] == captures
        )

    def ends(self, left: Observation, digest: str) -> bool:
        """Return whether all records were shown, and the end is the same."""
        agreed = self._agreed
        shown = self._num_logged, self._num_captured
        return shown == (len(agreed.log), len(agreed.captures)) and (left, digest) == (agreed.left, agreed.digest)
