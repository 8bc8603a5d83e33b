"""Judge of one run: the interface of all judges."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from scenarios.sampling import Output
from scenarios.spec import ENGINE, EngineName
from workers.record.evidence import Difference
from workers.record.log import Entry
from workers.record.observation import Observation

# The records that a judge sees after each step.
Sight: TypeAlias = Literal["log", "captures", "outputs"]


class End(NamedTuple):
    """Final state of a run that drained after `steps` steps.

    `left` is what the host still holds and `digest` that of all captures, of an engine that shows them.
    """

    steps: int
    outputs: Mapping[str, Output]
    left: Observation | None = None
    digest: str = ""


class Judge:
    """Interface of judges: see a run step by step and return the first difference; some are found at the end alone.

    `sees` names what it is shown behind each step, `planes` those in which it has compared anything. Of the log it is
    shown what is of the engines that it `sees_of`.
    """

    sees: tuple[Sight, ...] = ()
    sees_of: tuple[EngineName, ...] = (ENGINE,)

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


def told_of(found: Difference, of: EngineName) -> Difference:
    """Return a difference whose variable says that it is the producer's, if it is not of the engine of the trace."""
    return found if of == ENGINE else found.model_copy(update={"variable": f"{of}_{found.variable}"})
