"""Panel: the judges of one run, chosen by what the engine shows.

The oracle judges an engine that logs its decisions, step by step; identities of steps one that shows what its model is
given, and its control plane; races wherever accesses are watched; contracts every engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from scenarios.capabilities import Capabilities
from scenarios.drafters import TRAITS
from scenarios.events import CONTROL_EVENTS, DisturbTransfer, clears_cache
from scenarios.spec import ENGINE, PRODUCER, EngineName
from scenarios.trace import Trace
from workers.judge import step_identities
from workers.judge.attended_tokens import AttendedTokens
from workers.judge.checker import Checker
from workers.judge.contracts.delivery import Terms
from workers.judge.contracts.judge import Contracts
from workers.judge.control_plane import ControlPlane
from workers.judge.drafter_identities import DrafterIdentities
from workers.judge.hits import Hits
from workers.judge.judge import End, Judge
from workers.judge.layer_groups import LayerGroups
from workers.judge.lookups import Lookups
from workers.judge.races import RaceDetector, Races
from workers.judge.step_identities import StepIdentities
from workers.judge.transfer_identities import TransferIdentities
from workers.oracle.tape import Tapes
from workers.record.evidence import Difference, MissingOrder
from workers.record.log import Entry
from workers.record.observation import Observation
from workers.targets.target import Target


def shows_steps(capabilities: Capabilities) -> bool:
    """Tell whether an engine whose decisions are its own shows the inputs of its steps."""
    return not capabilities.logs_decisions and set(step_identities.PLANES) <= set(capabilities.planes)


def detector_of(capabilities: Capabilities) -> RaceDetector | None:
    """Return a watcher of the lanes that a run advances; none for an engine that watches its own accesses."""
    is_watched = bool(capabilities.lanes) and not capabilities.finds_races
    return RaceDetector(capabilities.lanes) if is_watched else None


def first_race_of(
    target: Target, detector: RaceDetector | None, capabilities: Capabilities
) -> Callable[[], MissingOrder | None] | None:
    """Return what gives the first race that the detector, or the engine itself, has seen; None if neither watches."""
    if detector is not None:
        return lambda: detector.race
    return (lambda: next(iter(target.races()), None)) if capabilities.finds_races else None


def _engine_of(seen: Entry | Observation) -> EngineName:
    return seen.of if isinstance(seen, Observation) else ENGINE


class Panel:
    """The judges of a run in the order in which they are asked; `checker` and `contracts` are two of them.

    `kept` is called with the log and the captures of each step.
    """

    def __init__(self, judges: Sequence[Judge] = ()) -> None:
        self.judges = judges
        self.kept: Callable[[list[Entry | Observation], list[Observation]], None] | None = None
        self.checker = next((judge for judge in judges if isinstance(judge, Checker)), None)
        self.contracts = next((judge for judge in judges if isinstance(judge, Contracts)), None)
        self._of_log = [judge for judge in judges if "log" in judge.sees]
        self._of_captures = [judge for judge in judges if "captures" in judge.sees]
        self._of_outputs = [judge for judge in judges if "outputs" in judge.sees]

    @property
    def planes(self) -> set[str]:
        return {plane for judge in self.judges for plane in judge.planes}

    @property
    def observations(self) -> list[Observation]:
        """What an engine whose decisions are its own has shown of its steps."""
        judges = (judge for judge in self.judges if isinstance(judge, StepIdentities) and ENGINE in judge.sees_of)
        return [seen for judge in judges for seen in judge.observations]

    def look(self, target: Target) -> Difference | None:
        """Show the judges the new records of a step; return the first difference."""
        log = target.take_log()
        found = None
        for judge in self._of_log:
            found = found or judge.see_log([seen for seen in log if _engine_of(seen) in judge.sees_of])
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
        """Show the judges the end of a run; return the first difference."""
        left = target.left_over() if self.checker is not None else None
        end = End(steps, target.outputs(), left, target.digest())
        return next((found for judge in self.judges if (found := judge.at_end(end)) is not None), None)

    def before_crash(self, target: Target) -> Difference | None:
        """Return the difference shown before a crash by an engine that logs its decisions, or None."""
        if self.checker is None:
            return None
        checker = self.checker
        return (
            checker.see_log(target.take_log()) or checker.see_captures(target.take_captures()) or checker.unexplained()
        )

    def wrong_before_crash(self, target: Target) -> Difference | None:
        """Return the first difference in the steps before a crash of an engine whose decisions are its own, or None."""
        log = target.take_log()
        for judge in self.judges:
            if isinstance(judge, StepIdentities):
                judge.see_log([seen for seen in log if _engine_of(seen) in judge.sees_of])
                found = judge.before_crash()
                if found is not None:
                    return found
        return None


@dataclass(frozen=True, slots=True)
class Case:
    """What a panel judges: an explicit trace on an engine; `first_race` is that of a run whose accesses are watched."""

    trace: Trace
    tapes: Tapes
    capabilities: Capabilities
    first_race: Callable[[], MissingOrder | None] | None


def _checker(case: Case) -> Checker | None:
    return Checker(case.trace, case.tapes) if case.capabilities.logs_decisions else None


def _races(case: Case) -> Races | None:
    return Races(case.first_race) if case.first_race is not None else None


def _step_identities(case: Case) -> StepIdentities | None:
    return StepIdentities() if shows_steps(case.capabilities) else None


def _step_identities_of_producer(case: Case) -> StepIdentities | None:
    is_shown = shows_steps(case.capabilities) and case.trace.spec.handoff is not None
    return StepIdentities(of=PRODUCER) if is_shown else None


def _attended_tokens(case: Case) -> AttendedTokens | None:
    spec = case.trace.spec
    # Without a prefix cache nothing is attended to but what a request has written itself.
    is_found = spec.prefix_cache and spec.layers != "windows" and shows_steps(case.capabilities)
    return AttendedTokens() if spec.has_connector or is_found else None


def _transfer_identities(case: Case) -> TransferIdentities | None:
    return TransferIdentities(case.trace.spec.offloading) if case.trace.spec.has_connector else None


def _drafter_identities(case: Case) -> DrafterIdentities | None:
    spec, events = case.trace.spec, case.trace.events
    # What a producer keeps of its drafter is not among what it sees, nor what is computed behind what a step has lost.
    loses_in_steps = (
        spec.transfer is not None
        and spec.transfer.loads == "synchronous"
        and any(isinstance(event, DisturbTransfer) and event.how in ("drop", "fail") for event in events)
    )
    is_whole = shows_steps(case.capabilities) and spec.handoff is None and not loses_in_steps
    return DrafterIdentities() if is_whole else None


def _lookups(case: Case) -> Lookups | None:
    spec = case.trace.spec
    is_looked_up = TRAITS[spec.drafter].is_lookup and spec.num_speculative_tokens > 0
    return Lookups(spec.num_speculative_tokens) if shows_steps(case.capabilities) and is_looked_up else None


def _layer_groups(case: Case) -> LayerGroups | None:
    return LayerGroups() if shows_steps(case.capabilities) and case.trace.spec.layers == "windows" else None


def _hits(case: Case) -> Hits | None:
    spec = case.trace.spec
    is_asked = spec.prefix_cache and spec.layers in ("attention", "windows") and not spec.has_connector
    return Hits(spec.num_speculative_tokens > 0) if is_asked and shows_steps(case.capabilities) else None


def _control_plane(case: Case) -> ControlPlane | None:
    is_controlled = any(event.do in CONTROL_EVENTS or clears_cache(event) for event in case.trace.events)
    return ControlPlane() if shows_steps(case.capabilities) and is_controlled else None


def _contracts(case: Case) -> Contracts:
    terms = Terms(case.trace, case.capabilities.words_from_prompt)
    return Contracts(terms, sees_steps=not case.capabilities.logs_decisions)


# Each makes its judge of an engine that shows what it has to see.
_JUDGES: tuple[Callable[[Case], Judge | None], ...] = (
    _checker,
    _races,
    _step_identities,
    _transfer_identities,
    _step_identities_of_producer,
    _attended_tokens,
    _layer_groups,
    _hits,
    _control_plane,
    _contracts,
    _drafter_identities,
    _lookups,
)


def panel_of(case: Case) -> Panel:
    """Return the judges of a run, in the order in which they are asked."""
    return Panel([judge for make in _JUDGES if (judge := make(case)) is not None])
