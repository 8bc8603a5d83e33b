"""Step in flight: its data between launch and the processing of its results."""

from dataclasses import dataclass

from workers.engine.input_batch import Key
from workers.engine.logprobs import LogprobsInFlight
from workers.engine.request import PlanRow
from workers.lanes.lane import LaneEvent, Span


@dataclass(frozen=True, slots=True)
class DraftsInFlight:
    """A step's draft tokens while they are being copied to the host."""

    landed: LaneEvent
    drafts: Span


@dataclass(slots=True)
class Step:
    """A launched step: its rows, and the pinned memory that its results are copied to.

    `computed` is each row's true count before the step, known once the previous step has been corrected.
    """

    number: int
    rows: tuple[PlanRow, ...] = ()
    keys: tuple[Key, ...] = ()
    k_step: int = 0
    output: Span | None = None
    counts: Span | None = None
    accepted: Span | None = None
    output_done: LaneEvent | None = None
    counts_done: LaneEvent | None = None
    logprobs: LogprobsInFlight | None = None
    drafts: DraftsInFlight | None = None
    computed: tuple[int, ...] = ()
