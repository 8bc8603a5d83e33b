"""Event feed: owns the ticks of a run, and hands each event of its trace to the engine at its place of a step."""

from collections.abc import Sequence

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Pausing, Place, Submit
from scenarios.trace import Trace
from workers.judge.contracts.judge import Contracts
from workers.oracle.incremental_tape import script_of
from workers.oracle.tape import Tapes
from workers.targets.target import Target


class EventQueue:
    """Events of a trace by tick and place, each with the number of submits before it."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.last_tick = max((event.tick for event in events), default=-1)
        self._events: dict[tuple[int, Place], list[tuple[AnyEvent, int]]] = {}
        num_submits = 0
        for event in events:
            self._events.setdefault((event.tick, event.at), []).append((event, num_submits))
            num_submits += isinstance(event, Submit)

    def at(self, tick: int, place: Place) -> Sequence[tuple[AnyEvent, int]]:
        """Return the events at a place of a step, in order."""
        return self._events.get((tick, place), ())


class EventFeed:
    """A target under the events of its trace; `tick` counts its steps.

    `contracts` receives each submit and abort, with what was delivered before and after. `scripts` has the script of
    each submit, empty ones for an engine whose drafts are not scripted.
    """

    def __init__(
        self, trace: Trace, target: Target, scripts: Sequence[list[int]], contracts: Contracts | None = None
    ) -> None:
        self.tick = 0
        self.events = EventQueue(trace.events)
        self._target = target
        self._scripts = scripts
        self._contracts = contracts

    def drained(self) -> bool:
        """Tell whether no event is left, no request is alive and no step is in flight."""
        return self.tick > self.events.last_tick and self._target.drained()

    def step(self) -> None:
        """Let the engine do one step, with the events of its tick."""
        self._target.step(self._happen)
        self.tick += 1

    def _happen(self, place: Place) -> None:
        for event, submit in self.events.at(self.tick, place):
            match event:
                case Submit():
                    self._submit(event, submit)
                case Abort():
                    if self._contracts is not None:
                        self._contracts.aborted(event, self._target.outputs().get(event.request))
                    self._target.abort(event)
                case _:
                    if isinstance(event, Pausing) and event.mode == "abort" and self._contracts is not None:
                        self._contracts.all_aborted(self._target.outputs())
                    self._target.apply(event)

    def _submit(self, event: Submit, submit: int) -> None:
        contracts, target, name = self._contracts, self._target, event.request
        is_again = contracts is not None and contracts.is_known(name)
        before = target.outputs().get(name) if is_again else None
        target.submit(event, submit, self._scripts[submit])
        if contracts is not None:
            contracts.submitted(event, before, target.outputs().get(name) if is_again else None)


def scripts_of(trace: Trace, tapes: Tapes, capabilities: Capabilities) -> list[list[int]]:
    """Return the script of each submit of a trace; an empty one for an engine whose drafts are not scripted."""
    submits = trace.submits()
    if not capabilities.scripts_drafts:
        return [[] for _ in submits]
    return [script_of(event, trace.spec, tapes) for event in submits]
