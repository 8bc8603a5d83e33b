"""Panel: all judges of one run; a judge's `of` returns None if it does not apply."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from scenarios.capabilities import Capabilities
from scenarios.spec import DATA_RANKS, ENGINE
from workers.judge.admissions import Admissions
from workers.judge.checker import Checker
from workers.judge.connector_transfers import ConnectorTransfers
from workers.judge.contracts.judge import Contracts
from workers.judge.control_plane import ControlPlane
from workers.judge.drafter_inputs import DrafterInputs
from workers.judge.drafter_states import DrafterStates
from workers.judge.history import History
from workers.judge.judge import Case, End, HistoryJudge, Judge, OfDataRank
from workers.judge.kv_content import KVContent
from workers.judge.model_inputs import ModelInputs, ProducerInputs
from workers.judge.ngram_lookups import NgramLookups
from workers.judge.prefix_hits import PrefixHits
from workers.judge.races import RaceDetector, Races
from workers.judge.rank_inputs import RankInputsJudge
from workers.judge.sampler_state import SamplerState
from workers.judge.scheduler_decisions import SchedulerDecisions
from workers.judge.window_groups import WindowGroups
from workers.record.engine_records import EngineRecord
from workers.record.evidence import Difference, MissingOrder
from workers.record.log import Entry
from workers.record.observation import Observation
from workers.targets.target import Target

AnyJudge: TypeAlias = Judge | HistoryJudge
J = TypeVar("J", bound=AnyJudge)

# In the order in which they are called: the first difference is reported.
_JUDGES = (
    Checker,
    Races,
    ModelInputs,
    SchedulerDecisions,
    RankInputsJudge,
    ConnectorTransfers,
    ProducerInputs,
    KVContent,
    WindowGroups,
    PrefixHits,
    ControlPlane,
    SamplerState,
    Contracts,
    DrafterInputs,
    DrafterStates,
    NgramLookups,
    Admissions,
)


def detector_of(capabilities: Capabilities) -> RaceDetector | None:
    """Return a race detector for simulated streams; None if the engine detects races itself.

    None as well for an engine without lanes.
    """
    is_watched = bool(capabilities.lanes) and not capabilities.finds_races
    return RaceDetector(capabilities.lanes) if is_watched else None


def first_race_of(
    target: Target, detector: RaceDetector | None, capabilities: Capabilities
) -> Callable[[], MissingOrder | None] | None:
    """Return a function that returns the first race so far; None if races are not detected."""
    if detector is not None:
        return lambda: detector.race
    return (lambda: next(iter(target.races()), None)) if capabilities.finds_races else None


class Panel:
    """The judges of a run, in the order in which they are called.

    `kept`, if set, is called with the log and the captures of each step.
    """

    def __init__(self, judges: Sequence[AnyJudge] = ()) -> None:
        self.judges = judges
        self.kept: Callable[[list[Entry | Observation], list[Observation]], None] | None = None
        self.checker = self._first(Checker)
        self.contracts = self._first(Contracts)
        self._shown: list[EngineRecord] = []
        self._of_log, self._of_captures, self._of_outputs = (
            [judge for judge in judges if isinstance(judge, Judge) and sight in judge.sees]
            for sight in ("log", "captures", "outputs")
        )

    @classmethod
    def of(cls, case: Case) -> "Panel":
        """Return the judges that apply to this trace and engine, with one of each for every data-parallel rank."""
        return cls([judge for kind in _JUDGES for judge in _judges(kind.of, case)])

    def _first(self, kind: type[J]) -> J | None:
        return next((judge for judge in self.judges if isinstance(judge, kind)), None)

    @property
    def planes(self) -> set[str]:
        """Names of the state categories (planes) compared so far by any judge."""
        history, planes = self.history(), set[str]()
        for judge in self.judges:
            planes.update(judge.compared(history) if isinstance(judge, HistoryJudge) else judge.planes)
        return planes

    def history(self) -> History:
        """Return the history of steps that the judges share."""
        return History.of(self._shown)

    def look(self, target: Target) -> Difference | None:
        """Pass the records of a step to the judges; return the first difference."""
        self._shown += target.take_engine_records()
        log = target.take_log()
        found = None
        for judge in self._of_log:
            found = found or judge.see_log(log)
        if found is not None:
            target.drain()
        captures = target.take_captures()
        if self.kept is not None:
            self.kept(log, captures)
        for judge in self._of_captures:
            found = judge.see_captures(captures) or found
        for judge in self._of_outputs:
            judge.see_outputs(target.outputs())
        return found

    def at_end(self, target: Target, steps: int) -> Difference | None:
        """Pass the end of the run to the judges; return the first difference."""
        left = target.left_over() if self.checker is not None else None
        submits = [taken.submit for taken in self.contracts.taken] if self.contracts is not None else []
        end = End(steps, target.outputs(), left, target.digest(), self.history(), submits)
        return next((found for judge in self.judges if (found := judge.at_end(end)) is not None), None)

    def before_crash(self, target: Target) -> Difference | None:
        """Return the first difference in log or captures, for a run that crashed; or None."""
        if self.checker is None:
            return None
        checker = self.checker
        return (
            checker.see_log(target.take_log()) or checker.see_captures(target.take_captures()) or checker.unexplained()
        )

    def wrong_before_crash(self, target: Target) -> Difference | None:
        """Return the first difference in the reported steps, for a run that crashed; or None."""
        self._shown += target.take_engine_records()
        history = self.history()
        found = (judge.before_crash(history) for judge in self.judges if isinstance(judge, HistoryJudge))
        return next((each for each in found if each is not None), None)


def _judges(of: Callable[[Case], AnyJudge | None], case: Case) -> Iterator[AnyJudge]:
    """Yield the judges that `of` returns: of the run, or of each data-parallel rank."""
    for engine in DATA_RANKS[: case.trace.spec.data_ranks]:
        judge = of(case)
        if judge is None or (engine != ENGINE and isinstance(judge, Judge)):
            return
        if isinstance(judge, HistoryJudge) and case.trace.spec.data_ranks > 1:
            yield OfDataRank(judge, engine)
        else:
            yield judge
