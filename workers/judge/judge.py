"""Interfaces of the judges of one run, and the values that judges receive.

A *capture* is a copy of device variables that the engine takes in stream order. A *plane* is a kind of checked values,
such as "kv" or "outputs".
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from scenarios.capabilities import Capabilities
from scenarios.events import Submit
from scenarios.sampling import Output
from scenarios.spec import ENGINE, EngineName
from scenarios.trace import Trace
from workers.judge.history import History
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Difference, MissingOrder
from workers.record.log import Entry
from workers.record.observation import Observation

# The kinds of records that a judge can receive after each step.
RecordKind: TypeAlias = Literal["log", "captures", "outputs"]
# An engine that logs no scheduler decisions reports its steps if it has these planes.
PLANES_OF_STEPS = ("blocks", "books", "counts", "inputs")


@dataclass(frozen=True, slots=True)
class Case:
    """What a judge receives before a run: trace with explicit prompts, engine capabilities.

    `first_race` returns the first race of the run; it is None without a race detector.
    """

    trace: Trace
    value_cache: ModelValueCache
    capabilities: Capabilities
    first_race: Callable[[], MissingOrder | None] | None

    @property
    def shows_plans(self) -> bool:
        """Return whether the engine reports scheduler outputs, not a decision log."""
        return shows_plans(self.capabilities)

    @property
    def shows_steps(self) -> bool:
        """Return whether the engine reports model inputs, too; not if its ranks are other processes."""
        has_processes = self.capabilities.ranks_are_processes and self.trace.spec.num_ranks > 1
        return self.shows_plans and not has_processes


def shows_plans(capabilities: Capabilities) -> bool:
    """Return whether an engine reports scheduler outputs, not a decision log."""
    return not capabilities.logs_decisions and set(PLANES_OF_STEPS) <= set(capabilities.planes)


class End(NamedTuple):
    """Final state of a run that drained after `steps` steps, with its outputs and its history.

    `submits` are the accepted requests, by number. For an engine that logs its decisions, `left` is what the host still
    holds and `digest` is the hash of all captures.
    """

    steps: int
    outputs: Mapping[str, Output]
    left: Observation | None = None
    digest: str = ""
    history: History = History((), {})
    submits: Sequence[Submit] = ()


class Judge:
    """Interface of judges that check a run step by step, and again at its end.

    `sees` names the kinds of records that the judge receives after each step.
    """

    sees: tuple[RecordKind, ...] = ()

    @property
    def planes(self) -> tuple[str, ...]:
        """The categories of state (planes, such as "kv") that this judge has compared so far."""
        return ()

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        """Check the host's new log entries and observations; return the first difference."""
        return None

    def see_captures(self, captures: Sequence[Observation]) -> Difference | None:
        """Check new copies of device variables in stream order; return the first difference.

        If `see_log` has found a difference in the same step, the device was drained before this call, and this returns
        the earlier of both differences.
        """
        return None

    def see_outputs(self, outputs: Mapping[str, Output]) -> None:
        """Check the outputs that clients have received so far, or store them for later checks."""

    def at_end(self, end: End) -> Difference | None:
        """Check the engine after its last request has ended; return the first difference."""
        return None


class HistoryJudge:
    """Interface of judges that check the complete history of a run at its end."""

    def compared(self, history: History) -> tuple[str, ...]:
        """Return the categories of state (planes) that this judge can check in a history."""
        raise NotImplementedError

    def differences(self, end: End) -> Iterator[Difference]:
        """Yield all differences in the order of the run; only the first is reported."""
        raise NotImplementedError

    def before_crash(self, history: History) -> Difference | None:
        """Return the first difference in the steps reported before a crash, or None."""
        return None

    def at_end(self, end: End) -> Difference | None:
        """Return the first difference of a completed run, or None."""
        return next(self.differences(end), None)


class OfDataRank(HistoryJudge):
    """Judge of the engine of one data-parallel rank: it checks that rank's records as those of the only engine."""

    def __init__(self, judge: HistoryJudge, of: EngineName) -> None:
        self._judge, self._of = judge, of

    def compared(self, history: History) -> tuple[str, ...]:
        return self._judge.compared(history.of_one(self._of))

    def differences(self, end: End) -> Iterator[Difference]:
        for found in self._judge.differences(end._replace(history=end.history.of_one(self._of))):
            yield with_engine_name(found, self._of)

    def before_crash(self, history: History) -> Difference | None:
        found = self._judge.before_crash(history.of_one(self._of))
        return with_engine_name(found, self._of) if found is not None else None


def with_engine_name(found: Difference, of: EngineName) -> Difference:
    """Return a difference with its engine's name added, except for the main engine."""
    return found if of == ENGINE else found.model_copy(update={"variable": f"{of}_{found.variable}"})
