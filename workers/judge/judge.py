"""Judges of one run: their interfaces, and what they know of the run before it begins."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from scenarios.capabilities import Capabilities
from scenarios.events import Submit
from scenarios.sampling import Output
from scenarios.spec import ENGINE, EngineName
from scenarios.trace import Trace
from workers.judge.history import History
from workers.oracle.tape import Tapes
from workers.record.evidence import Difference, MissingOrder
from workers.record.log import Entry
from workers.record.observation import Observation

# The records that a judge is shown after each step.
Sight: TypeAlias = Literal["log", "captures", "outputs"]
# An engine whose scheduler decides for itself shows its steps if it has these planes.
PLANES_OF_STEPS = ("blocks", "books", "counts", "inputs")


@dataclass(frozen=True, slots=True)
class Case:
    """A run before it begins: an explicit trace on an engine with some capabilities.

    `first_race` returns the first race of the run; it is None if the run's memory accesses are not watched.
    """

    trace: Trace
    tapes: Tapes
    capabilities: Capabilities
    first_race: Callable[[], MissingOrder | None] | None

    @property
    def shows_steps(self) -> bool:
        """Return whether an engine whose scheduler decides for itself shows its steps."""
        return shows_steps(self.capabilities)


def shows_steps(capabilities: Capabilities) -> bool:
    """Return whether an engine whose scheduler decides for itself shows its steps."""
    return not capabilities.logs_decisions and set(PLANES_OF_STEPS) <= set(capabilities.planes)


class End(NamedTuple):
    """Final state of a run that drained after `steps` steps, and what its engines showed of them.

    `submits` are the requests that the engine took in, by their numbers. An engine that logs its decisions also has
    `left`, what the host still holds, and `digest`, that of all captures.
    """

    steps: int
    outputs: Mapping[str, Output]
    left: Observation | None = None
    digest: str = ""
    history: History = History((), {})
    submits: Sequence[Submit] = ()


class Judge:
    """Interface of judges that see a run step by step and return the first difference; some are found at the end alone.

    `sees` names what it is shown after each step, `planes` those in which it has compared anything.
    """

    sees: tuple[Sight, ...] = ()

    @property
    def planes(self) -> tuple[str, ...]:
        """Planes in which something was compared so far."""
        return ()

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        """Judge the host's decisions and observations since the last call, in order."""
        return None

    def see_captures(self, captures: Sequence[Observation]) -> Difference | None:
        """Judge the device's captures since the last call, in stream order.

        Where the log of the step differs, everything that was launched has run: of both differences it is the earlier.
        """
        return None

    def see_outputs(self, outputs: Mapping[str, Output]) -> None:
        """Remember what has been delivered so far."""

    def at_end(self, end: End) -> Difference | None:
        """Judge what was seen, after the engine has drained."""
        return None


class HistoryJudge:
    """Interface of judges of the history of a run, which is complete when they are asked."""

    def compared(self, history: History) -> tuple[str, ...]:
        """Return the planes in which there is something to compare in a history."""
        raise NotImplementedError

    def differences(self, end: End) -> Iterator[Difference]:
        """Yield what is wrong, in the order in which it is reported."""
        raise NotImplementedError

    def at_end(self, end: End) -> Difference | None:
        """Return the first difference."""
        return next(self.differences(end), None)


def named_for(found: Difference, of: EngineName) -> Difference:
    """Return a difference with the engine's name before its variable, unless it is the engine of the trace."""
    return found if of == ENGINE else found.model_copy(update={"variable": f"{of}_{found.variable}"})
